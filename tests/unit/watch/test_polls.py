"""A watcher that sees groups by polls alone, and one whose polls show only some groups."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kohort.groups.encoding import encode_key, encode_value
from kohort.groups.history.evidence import record_evidence
from kohort.groups.history.names import UNKNOWN_GENERATION
from kohort.groups.history.sentence import record_sentence
from kohort.groups.kinds import GroupKind
from kohort.groups.records import DurableRecord, GroupRecord, OffsetRecord, StoredMember
from kohort.groups.requests import CONSUMER, CommittedOffset
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kohort.protocol.records.record import Record
from kohort.watch.core.changes import Changes
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Place, Poll
from kohort.watch.core.left_out import DEFAULT, LeftOut
from kohort.watch.core.logged import Logs
from kohort.watch.core.polled import FORGOTTEN_MS, PolledGroup, PolledGroups, Snapshot
from kohort.watch.core.watcher import Watcher
from kohort.watch.poller import NotAtRest
from tests.support.processes.commands import said_here
from tests.unit.watch.recorded import Json, poll_lab, rebalance_starts, watch_lab

HISTORY = poll_lab()


def member(
    member_id: str, *partitions: int, instance: str | None = None, topics: str = "t"
) -> StoredMember:
    assigned = [TopicPartition(topic="t", partitions=list(partitions))]
    return StoredMember(
        member_id,
        instance,
        member_id.rstrip("0123456789"),
        "/h",
        0,
        0,
        encode_versioned(ConsumerProtocolSubscription(topics=topics.split(), user_data=None), 1),
        encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), 0),
    )


def snapshot(
    at_s: float, *members: StoredMember, state: str = "", epoch: int | None = None
) -> Snapshot:
    kind = GroupKind.CLASSIC if epoch is None else GroupKind.CONSUMER
    number = UNKNOWN_GENERATION if epoch is None else epoch
    record = GroupRecord("g", CONSUMER, number, "range", None, -1, members)
    return Snapshot(int(at_s * 1000), kind, state or ("Stable" if members else "Empty"), record)


def watch(*snapshots: Snapshot) -> list[Json]:
    group = PolledGroup("g", Changes(), Logs())
    return [record for each in snapshots for record in group.take(each)]


def triggers(history: list[Json]) -> list[Any]:
    return [(record["trigger"]["kind"], record["trigger"]["certainty"]) for record in history]


# The recorded lab.


def test_nothing_is_certain_and_how_a_member_went_is_unclear() -> None:
    for record in HISTORY:
        assert record["trigger"]["certainty"] != "certain"
        for listed in record.get("members", ()):
            if listed["fate"] not in {"kept", "new", "replaced"}:
                assert listed["certainty"] == "unclear"
                assert "session_expired" in listed["candidates"]


def test_who_is_likely_to_have_begun_a_rebalance_did() -> None:
    likely = [record for record in HISTORY if record["trigger"]["certainty"] == "likely"]
    assert len(likely) >= 20
    for record in likely:
        trigger = record["trigger"]
        # If several members were first seen in the same poll, the cause names none of them.
        members = {
            member_id
            for group, kind, member_id in rebalance_starts()
            if (group, kind) == (record["group"], trigger["kind"])
        }
        assert members
        assert trigger["member_id"] in {None, *members}


def gone(history: list[Json]) -> set[str]:
    return {
        listed["member_id"]
        for record in history
        for listed in record.get("members", ())
        if listed["fate"] in {"left", "session_expired", "rebalance_timeout"}
        and record["group_type"] == "classic"
    }


def test_nearly_all_departures_are_seen() -> None:
    complete = gone(watch_lab(polls=True))
    assert len(complete & gone(HISTORY)) > 0.9 * len(complete)
    assert not gone(HISTORY) - complete


@pytest.mark.parametrize(
    "record", HISTORY[::5], ids=lambda one: f"{one['group']}-{one['sequence']}"
)
def test_commands_show_no_generation_and_no_duration(record: Json) -> None:
    text = "\n".join([record_sentence(record, str), *record_evidence(record, str)])
    assert "generation" not in text
    assert "joins took" not in text


def test_commands_read_it_and_rank_nothing_that_it_does_not_show(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rebalances.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in HISTORY))
    listed = said_here(capsys, "groups", "list", "--json", "--from", str(path)).json["groups"]
    assert sum(row["rebalances"] for row in listed) == sum(
        record["kind"] == "rebalance" for record in HISTORY
    )
    assert said_here(capsys, "groups", "timeline", "ck-classic-roll", "--from", str(path)).lines
    advice = said_here(
        capsys, "groups", "advise", "ck-classic-roll", "--json", "--from", str(path)
    ).json
    assert advice["choices"] == []


# Cases that the lab does not have.


def test_a_member_that_came_and_went_between_two_rests_is_named() -> None:
    a, b = member("a", 0), member("b1")
    (record,) = watch(
        snapshot(0, a),
        snapshot(1, a, b, state="PreparingRebalance"),
        snapshot(2, a, state="CompletingRebalance"),
        snapshot(3, a),
    )
    assert triggers([record]) == [("member_added", "likely")]
    assert record["trigger"]["member_id"] == "b1"
    assert record["started_between_ms"] == [0, 1_000]


def test_a_departure_and_an_arrival_in_one_poll_are_in_no_certain_order() -> None:
    (record,) = watch(
        snapshot(0, member("a", 0), member("b1", 1)), snapshot(1, member("a", 0), member("b2", 1))
    )
    assert record["trigger"]["certainty"] == "unclear"
    assert set(record["trigger"]["candidates"]) >= {"member_added", "member_left"}


def test_members_that_went_together_were_all_members_before() -> None:
    (record,) = watch(snapshot(0, member("a", 0), member("b1", 1), member("c", 2)), snapshot(1))
    assert record["trigger"]["member_id"] is None
    assert (record["members_before"], record["members_after"]) == (3, 0)
    assert record["outcome"] == "empty"


def test_what_begins_while_a_group_rebalances_is_not_made_up() -> None:
    a = member("a", 0)
    assert not watch(snapshot(0, a, state="PreparingRebalance"), snapshot(1, a))
    assert not watch(snapshot(0, a), snapshot(1, a), snapshot(2, a))


def test_a_static_member_that_is_back_at_once_may_have_avoided_a_rebalance() -> None:
    a = member("a", 0)
    (record,) = watch(
        snapshot(0, a, member("b1", 1, instance="b")), snapshot(1, a, member("b2", 1, instance="b"))
    )
    assert record["kind"] == "avoided"
    assert triggers([record]) == [("static_replaced", "unclear")]


def test_consumer_groups_have_epochs_and_their_own_causes() -> None:
    history = watch(
        snapshot(0, member("a", 0, 1), epoch=1),
        snapshot(1, member("a", 0), member("b", 1), epoch=2),
        snapshot(2, member("a", 0), member("b", 1, topics="t u"), epoch=3),
        snapshot(3, member("a", 0), member("b", 1, 2, topics="t u"), epoch=4),
        snapshot(4, member("a", 0, 1, 2), epoch=5),
        snapshot(5, member("a", 0, 1, 2), epoch=6),
    )
    assert triggers(history) == [
        ("member_added", "likely"),
        ("subscription_changed", "likely"),
        ("topics_changed", "likely"),
        ("member_left", "unclear"),
        ("unknown", "unclear"),
    ]
    assert [record["generation"] for record in history] == [2, 3, 4, 5, 6]
    assert {record["group_type"] for record in history} == {"consumer"}
    assert history[0]["partitions"]["moved"] == 1


def test_a_group_may_be_missing_from_polls_while_its_coordinator_moves() -> None:
    groups = PolledGroups(10)
    groups.changes.keeps_groups = True
    list(groups.take(snapshot(0, member("a", 0))))
    groups.forget(set(), 60_000)
    assert len(list(groups.take(snapshot(61, member("a", 0), member("b", 1))))) == 1
    assert not groups.changes.take().removed
    groups.forget(set(), 61_000 + FORGOTTEN_MS)
    assert not len(groups)
    gone = groups.changes.take()
    assert len(gone.groups) == 1
    assert gone.groups == gone.removed


# Polls beside records.


def c_joins_and_b_leaves(*, left_ms: int, ended_ms: int, is_polled: bool) -> Json:
    """b leaves right after its last commit; a poll at 21 s shows that c has joined."""
    a, b, c = member("a", 0), member("b", 1), member("c", 1)
    watcher = Watcher({}, lambda group: Timeouts())
    records: list[tuple[int, DurableRecord]] = [
        (1_000, generation(1, 1_000, a, b)),
        (left_ms, OffsetRecord("g", "t", 1, CommittedOffset(5, 0, "", 0))),
        (ended_ms + 100, generation(2, ended_ms, a, c)),
    ]
    for offset, (at_ms, record) in enumerate(records):
        if is_polled and at_ms > 21_000:
            watcher.rest(20_000, ())
            ids = frozenset(["a", "c"])
            watcher.poll("g", Poll(21_000, "PreparingRebalance", ids))
        stored = Record(encode_value(record), encode_key(record), (), at_ms, offset)
        list(watcher.take([stored], Place(0, offset)))
    (rebalance,) = watcher.flush()
    trigger: Json = rebalance["trigger"]
    return trigger


def test_what_the_first_poll_shows_may_have_been_long_before_it() -> None:
    trigger = c_joins_and_b_leaves(left_ms=20_300, ended_ms=21_400, is_polled=True)
    assert trigger["certainty"] == "unclear"
    assert set(trigger["candidates"]) == {"member_added", "member_left"}


def test_a_departure_at_the_end_of_a_join_phase_has_rather_ended_it() -> None:
    trigger = c_joins_and_b_leaves(left_ms=21_340, ended_ms=21_400, is_polled=False)
    assert trigger["certainty"] == "unclear"
    assert set(trigger["candidates"]) == {"member_added", "member_left"}


def generation(number: int, ended_ms: int, *members: StoredMember) -> GroupRecord:
    joined = [
        each._replace(session_timeout_ms=10_000, rebalance_timeout_ms=60_000) for each in members
    ]
    return GroupRecord("g", CONSUMER, number, "range", "a", ended_ms, tuple(joined))


def test_a_group_that_may_not_be_seen_is_not_at_rest() -> None:
    shown = NotAtRest(busy={"busy"}, visible={"busy", "quiet"})
    assert [group for group in ("busy", "quiet", "hidden") if group in shown] == ["busy", "hidden"]


# Filters.


def test_groups_are_left_out_by_their_whole_names() -> None:
    assert "console-consumer-17" in LeftOut(besides=DEFAULT)
    assert "kohort-watch" in LeftOut(besides=DEFAULT)
    assert "kohort-watch-2" not in LeftOut(besides=DEFAULT)
    assert "billing" not in LeftOut()
    assert "billing-eu" in LeftOut(only=re.compile("billing|etl"))
