"""Findings of small histories in plain Python; tests/pipeline/test_report.py compares Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kohort.broker.core.history.json_form import as_json
from kohort.broker.core.history.model import HistoryRecord, WaitedFor
from kohort.pipeline.plain.history import History, is_event, read_history
from kohort.pipeline.plain.ownership import flapping, partitions, unavailability
from kohort.pipeline.plain.storms import storms
from kohort.pipeline.plain.summaries import causes, culprits, figures, needless, percentile
from kohort.pipeline.plain.waiting import heartbeat_gaps, slow_members
from tests.pipeline.events import BEGIN_MS, avoided, member, rebalance


def history(*records: HistoryRecord) -> History:
    return read_history([as_json(record) for record in records])


def columns(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def came(member_id: str, host: str) -> Any:  # noqa: ANN401 - a member of the model.
    return member(member_id, join=0, sync=100, fate="new", host=host)


def went(member_id: str, host: str) -> Any:  # noqa: ANN401 - likewise.
    return member(member_id, fate="left", fate_ms=0, host=host)


def test_members_that_were_waited_for_come_first() -> None:
    found = slow_members(
        history(
            rebalance(
                1,
                0,
                member("slow-1", join=900, sync=1_000, told_ms=100),
                member("quick-1", join=20, sync=1_000, told_ms=10),
                waited_for=WaitedFor(phase="join", member_ids=("slow-1",), ms=880),
            ),
            rebalance(
                2,
                100,
                member("slow-2", join=600, sync=1_000, told_ms=200),
                member("late-1", fate="rebalance_timeout", fate_ms=9_000),
                waited_for=WaitedFor(phase="sync", member_ids=("slow-2", "unlisted-1"), ms=400),
            ),
            rebalance(3, 200, waited_for=WaitedFor(phase="initial_delay", ms=3_000)),
        )
    )
    counts = ("process", "waited_for_count", "waited_for_total_ms", "missed_count")
    assert columns(found, *counts) == [
        ("slow", 2, 1_280, 0),
        ("unlisted-1", 1, 400, 0),
        ("late", 0, 0, 1),
    ]
    assert (found[0]["for_join_count"], found[0]["for_assignment_count"]) == (1, 1)
    assert (found[0]["join_delay_p50_ms"], found[0]["join_delay_p99_ms"]) == (400, 800)


def test_heartbeat_gaps_are_how_long_it_took_to_be_told() -> None:
    found = heartbeat_gaps(
        history(
            rebalance(1, 0, member("a-1", join=20, sync=30, told_ms=10)),
            rebalance(2, 9, member("a-1", join=40, sync=50, told_ms=30)),
            rebalance(
                3,
                99,
                member("dead-1", fate="session_expired", fate_ms=0),
                trigger="session_expired",
                by="dead-1",
            ),
        )
    )
    names = ("process", "told_count", "told_p50_ms", "told_longest_ms", "expired_count")
    assert columns(found, *names) == [("a", 2, 10, 30, 0), ("dead", 0, None, None, 1)]
    assert found[1]["expired_timeout_ms"] == 45_000


def test_causes_whose_doing_they_were_and_what_moved_nothing() -> None:
    made = history(
        rebalance(1, 0, member("a-1", join=0, sync=30, kept=1), trigger="leader_rejoined"),
        avoided(2, 100),
        rebalance(3, 300, member("a-1", join=0, sync=50, gained=["t-1"]), by="a-1"),
    )
    names = ("trigger_kind", "rebalance_count", "avoided_count", "needless_count")
    assert columns(causes(made), *names) == [
        ("member_added", 1, 0, 0),
        ("leader_rejoined", 1, 1, 1),
    ]
    assert columns(culprits(made), "trigger_kind", "process") == [("member_added", "a")]
    assert columns(needless(made), "sequence") == [(1,)]
    told = figures(made)
    assert (told["rebalance_count"], told["avoided_count"], told["stopped_total_ms"]) == (2, 1, 80)
    assert (told["first_at_ms"], told["last_at_ms"]) == (BEGIN_MS, BEGIN_MS + 300_000)


@pytest.mark.parametrize(
    ("hosts", "started_by"), [(["/1", "/2", "/3"], "deploy"), (["/1", "/1"], "member")]
)
def test_storms_and_what_started_them(hosts: list[str], started_by: str) -> None:
    records = []
    for turn, host in enumerate(hosts):
        old, new = f"app-{turn}", f"app-{turn + 1}"
        left = rebalance(2 * turn + 1, 5 * turn, went(old, host), trigger="member_left", by=old)
        added = rebalance(2 * turn + 2, 5 * turn + 2, came(new, host), by=new)
        records += [left, added]
    if started_by == "deploy":
        records = [
            replace(one, trigger=replace(one.trigger, client_id=f"pod-{place}"))
            for place, one in enumerate(records)
        ]
    (found,) = storms(history(*records))
    assert found["started_by"] == started_by
    assert found["rebalance_count"] == 2 * len(hosts)
    assert found["first_cause"] == "member_left"


def test_rebalances_that_are_far_apart_are_no_storm() -> None:
    assert storms(history(*(rebalance(n, 600 * n) for n in range(1, 6)))) == []
    # But those that follow each other are.
    follow_ups = [rebalance(n, 600 * n, follows=n - 1 if n > 1 else None) for n in range(1, 6)]
    assert len(storms(history(*follow_ups))) == 1


def test_partitions_have_an_owner_or_a_time_without_one() -> None:
    owned = partitions(
        history(
            rebalance(1, 0, member("a-1", join=0, sync=1_000, gained=["t-0"])),
            # An eager member stops for a rebalance, and goes on with what it had.
            rebalance(2, 10, member("a-1", join=200, sync=900, kept=1)),
            rebalance(
                3,
                20,
                member("a-1", fate="session_expired", fate_ms=0, given_up=["t-0"]),
                member("b-1", join=100, sync=2_000, gained=["t-0"]),
                trigger="session_expired",
                by="a-1",
            ),
        )
    )
    times = owned["t", 0]
    assert columns(times, "state", "owner", "ended_by") == [
        ("owned", "a-1", "stopped"),
        ("unavailable", "a-1", "assigned"),
        ("owned", "a-1", "session_expired"),
        ("unavailable", "a-1", "assigned"),
        ("owned", "b-1", None),
    ]
    assert [row["duration_ms"] for row in times] == [9_200, 700, 9_100, 2_000, None]
    (stopped, expired) = sorted(unavailability(owned), key=lambda row: int(row["total_ms"]))
    assert (stopped["cause"], stopped["total_ms"]) == ("member_added", 700)
    assert (expired["cause"], expired["total_ms"]) == ("session_expired", 2_000)


def test_partitions_that_keep_changing_hands_are_flapping() -> None:
    records = [
        rebalance(
            turn,
            10 * turn,
            member("ab"[turn % 2] + "-1", join=0, sync=100, gained=["t-7"]),
            member("ba"[turn % 2] + "-1", join=0, sync=100, given_up=["t-7"] if turn > 1 else []),
        )
        for turn in range(1, 6)
    ]
    (found,) = flapping(partitions(history(*records)))
    assert (found["topic"], found["partition"], found["moves"]) == ("t", 7, 4)
    assert (found["owner_count"], found["returns"], found["shortest_ms"]) == (2, 3, 10_000)
    assert flapping(partitions(history(*records[:2]))) == []


def test_percentiles_are_values_that_were_there() -> None:
    assert percentile([400, 800], 0.5) == 400
    assert percentile([1, 2, 3], 0.5) == 2
    assert percentile([1, None, 3], 0.99) == 3
    assert percentile([], 0.5) is None


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {"schema": 2, "kind": "rebalance"},
        {"schema": 1, "kind": "rebalance", "group": "g"},
        {**as_json(rebalance(1, 0)), "outcome": "running"},
        {**as_json(rebalance(1, 0)), "sequence": "1"},
        {**as_json(rebalance(1, 0)), "trigger": {"kind": 7}},
    ],
)
def test_what_is_no_complete_event_is_none(record: object) -> None:
    assert not is_event(record)
    assert is_event(as_json(rebalance(1, 0)))
    assert is_event(as_json(avoided(1, 0)))


def test_a_value_of_another_type_is_an_error_that_names_the_event() -> None:
    with pytest.raises(ValueError, match="event 4"):
        read_history([{**as_json(rebalance(4, 0)), "members": [7]}])
