"""Histories, whole ones and such as stock brokers leave, and what is read from them."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kohort.insight.advisor.heartbeat_times import HeartbeatTimer
from kohort.insight.advisor.prediction import predict
from kohort.insight.advisor.reading import read_trace
from kohort.insight.advisor.trace import End, Pause, Rejoin, Trace, Uncertainty
from kohort.protocol.join_reason import JoinReason

WEEK = Path(__file__).parents[4] / "examples" / "rebalance-week" / "week.jsonl.gz"
Json = dict[str, Any]
Change: TypeAlias = Any
"""A field by its name."""
S = 1_000
SETTINGS = {
    "session_timeout_ms": 20 * S,
    "heartbeat_interval_ms": 2 * S,
    "rebalance_timeout_ms": 60 * S,
    "initial_rebalance_delay_ms": S,
}


def caused(at_ms: int, kind: str, member: str | None = None, **trigger: Change) -> Json:
    """A rebalance with this cause, whose number is its place in the history."""
    client = None if member is None else member.rsplit("-", 1)[0]
    host = None if member is None else f"/{client}"
    known = {"kind": kind, "at_ms": at_ms, "member_id": member, "client_id": client, "host": host}
    record = {"schema": 1, "kind": "rebalance", "group": "g", "outcome": "stable"}
    return record | {"started_at_ms": at_ms, "trigger": known | trigger}


def came(at_ms: int, member: str, **trigger: Change) -> Json:
    return caused(at_ms, "member_added", member, **trigger)


def left(at_ms: int, member: str, **trigger: Change) -> Json:
    return caused(at_ms, "member_left", member, **trigger)


def expired(at_ms: int, member: str) -> Json:
    return caused(at_ms, "session_expired", member, session_timeout_ms=10 * S)


def numbered(records: Iterable[Json]) -> list[Json]:
    return [{"sequence": number} | record for number, record in enumerate(records, start=1)]


def read(records: Iterable[Json], **known: Change) -> Trace:
    found = read_trace("g", numbered(records), known)
    assert found is not None
    return found


def runs_of(found: Trace, name: str) -> list[tuple[int, int | None, End | None]]:
    (slot,) = (one for one in found.slots if one.name == name)
    return [(run.start_ms, run.end_ms, run.end) for run in slot.runs]


def test_who_comes_leaves_and_comes_back_under_its_client_id_is_one_process() -> None:
    found = read([came(0, "a-1"), came(10 * S, "b-2"), left(60 * S, "a-1"), came(70 * S, "a-3")])
    assert [slot.name for slot in found.slots] == ["a", "b"]
    assert runs_of(found, "a") == [(0, 60 * S, End.LEFT), (70 * S, None, None)]


def test_partitions_that_a_rebalance_moved_twice_are_not_more_partitions() -> None:
    moves = [(0, 6), (1, 6), (5, 1), (4, 1), (6, 0)]  # Twice one, and one not assigned yet.
    found = read(
        came(number * S, f"a-{number}")
        | {"partitions": {"known": True, "kept": kept, "gained": gained}}
        for number, (kept, gained) in enumerate(moves, 1)
    )
    assert found.partition_count == 6


def test_a_crash_was_when_the_session_began_that_expired() -> None:
    found = read(
        [came(0, "a-1"), expired(60 * S, "a-1") | {"outcome": "empty"}], heartbeat_interval_ms=2 * S
    )
    assert found.recorded.session_timeout_ms == 10 * S
    # In the middle between its last heartbeat and the one that did not come.
    assert runs_of(found, "a") == [(0, 51 * S, End.SILENT)]


def test_a_process_that_came_back_before_its_old_self_expired_is_the_same() -> None:
    found = read([came(0, "a-1"), came(55 * S, "a-2"), expired(60 * S, "a-1")])
    assert runs_of(found, "a") == [(0, 51_500, End.SILENT), (55 * S, None, None)]


def test_two_processes_that_share_a_client_id_are_told_apart_by_their_hosts() -> None:
    there = came(S, "a-2", host="/other")["trigger"]
    found = read(
        [
            came(0, "a-1") | {"further_causes": [there]},
            left(60 * S, "a-1"),
            came(70 * S, "a-3", host="/other"),
        ]
    )
    assert [(slot.name, len(slot.runs)) for slot in found.slots] == [
        ("a", 1),
        ("a~2", 1),
        ("a~3", 1),
    ]
    assert any("different client ids or hosts" in text for text in found.unknown)


def test_members_of_a_log_that_share_a_client_id_are_not_taken_for_one_another() -> None:
    found = read(
        [
            came(0, "a-1", host=None),
            came(10 * S, "a-2", host=None),
            left(60 * S, "a-1", host=None),
            came(70 * S, "a-3", host=None),
        ]
    )
    assert [len(slot.runs) for slot in found.slots] == [1, 1, 1]
    assert any(
        "share their client id with others and have no host: 3;" in text for text in found.unknown
    )


def test_a_session_that_is_a_guess_does_not_end_a_process_before_its_beginning() -> None:
    found = read([came(0, "b-1"), came(5 * S, "a-2"), caused(15 * S, "session_expired", "a-2")])
    ((start_ms, end_ms, end),) = runs_of(found, "a")
    assert (start_ms, end) == (5 * S, End.SILENT)
    assert end_ms is not None
    assert start_ms < end_ms < 15 * S


def test_a_member_that_says_it_lost_its_membership_had_paused() -> None:
    back = came(90 * S, "a-2", reason="MEMBERSHIP_LOST", reason_source="tag")
    found = read([came(0, "a-1"), expired(60 * S, "a-1"), back])
    assert runs_of(found, "a") == [(0, None, None)]
    assert found.slots[0].pauses == (Pause(51_500, 90 * S, 1_500),)


def test_without_such_a_word_it_is_taken_for_a_restart_and_that_is_said() -> None:
    found = read([came(0, "a-1"), expired(60 * S, "a-1"), came(90 * S, "a-2")])
    assert runs_of(found, "a") == [(0, 51_500, End.SILENT), (90 * S, None, None)]
    assert any("paused or restarted" in text for text in found.unknown)


def test_static_members_are_known_by_their_instance_and_how_long_they_were_away_is_not() -> None:
    added = caused(0, "static_added", "i-1", instance_id="i")
    replaced = caused(60 * S, "static_replaced", "i-2", instance_id="i")
    found = read([added, replaced | {"kind": "avoided", "at_ms": 60 * S}])
    assert runs_of(found, "i") == [(0, 60 * S, End.LEFT), (60 * S, None, None)]
    assert found.recorded.static is True
    assert any("their duration is not recorded" in text for text in found.unknown)


def test_a_change_of_topics_is_the_leaders_and_answers_to_a_rebalance_are_no_causes() -> None:
    change = {"reason": "TOPIC_METADATA_CHANGE", "was_leader": True}
    found = read(
        [
            came(0, "a-1"),
            caused(60 * S, "leader_rejoined", "a-1", **change),
            caused(61 * S, "protocols_changed", "a-1", reason="PARTITIONS_REVOKED"),
            caused(90 * S, "protocols_changed", "a-1", reason="SUBSCRIPTION_CHANGE"),
        ]
    )
    assert found.rejoins == (
        Rejoin(60 * S, None, JoinReason.TOPIC_METADATA_CHANGE),
        Rejoin(90 * S, 0, JoinReason.SUBSCRIPTION_CHANGE, changes_protocols=True),
    )


def test_a_cooperative_leader_that_sees_topics_change_may_be_any_member_as_well() -> None:
    change = {"reason": "TOPIC_METADATA_CHANGE", "was_leader": True}
    found = read(
        [
            came(0, "a-1"),
            caused(60 * S, "protocols_changed", "a-1", **change),
            caused(90 * S, "protocols_changed", "a-1", reason="ENFORCED"),
        ]
    )
    assert found.rejoins == (
        Rejoin(60 * S, None, JoinReason.TOPIC_METADATA_CHANGE),
        Rejoin(90 * S, 0, JoinReason.ENFORCED),
    )


def test_records_come_in_any_order_and_twice_and_those_that_run_are_left_out() -> None:
    records = numbered([came(0, "a-1"), came(60 * S, "b-2"), left(90 * S, "b-2")])
    running = records[2] | {"outcome": "running"}
    straight = read(records)

    assert straight.rebalances == 3
    assert read([running, records[1], records[2], records[0], records[1]]) == straight


def test_what_is_missing_is_said() -> None:
    found = read(
        [
            came(0, "a-1") | {"sequence": 4},
            left(60 * S, "a-1") | {"sequence": 7, "members_dropped": 3},
        ]
    )
    said = "; ".join(found.unknown)
    for text in (
        "missing records between the first and the last: 2",
        "after the group was created",
        "member rows omitted from the records: 3",
        "session.timeout.ms is not in the history; assumed to be 45 s",
        "max.poll.interval.ms is not in the history",
        "eager or cooperative",
        "the members' partitions are not",
        "how long members take to join",
    ):
        assert text in said


def test_members_that_were_never_seen_to_join_again_are_named() -> None:
    seen = {"member_id": "a-1", "client_id": "a", "fate": "kept", "told_ms": 10}
    found = read(
        [came(0, "a-1"), came(60 * S, "b-2") | {"members": [seen | {"join_received_ms": 410}]}]
    )
    assert any(
        text == "the join time of 1 of 2 members (b) is not in the history; "
        "assumed to be 0.4 s, like the others"
        for text in found.unknown
    )


def test_what_somebody_knows_is_not_said_to_be_unknown() -> None:
    found = read([came(0, "a-1")], session_timeout_ms=20 * S, rebalance_timeout_ms=60 * S)
    assert found.recorded.session_timeout_ms == 20 * S
    assert not any("session.timeout.ms" in text for text in found.unknown)
    assert not any("max.poll.interval.ms" in text for text in found.unknown)


@pytest.mark.parametrize(
    ("name", "doubt"),
    [
        ("session_timeout_ms", Uncertainty.SESSION),
        ("heartbeat_interval_ms", Uncertainty.HEARTBEAT),
        ("rebalance_timeout_ms", Uncertainty.TIMEOUT),
        ("initial_rebalance_delay_ms", Uncertainty.DELAY),
    ],
)
def test_a_setting_that_the_history_does_not_show_is_a_doubt_unless_somebody_knows_it(
    name: str, doubt: Uncertainty
) -> None:
    records = [came(0, "a-1")]
    others = {one: value for one, value in SETTINGS.items() if one != name}

    assert doubt in read(records, **others).doubts
    assert doubt not in read(records, **SETTINGS).doubts


def test_members_that_were_never_told_of_a_rebalance_are_a_doubt_beside_those_that_were() -> None:
    def records(*who: str) -> list[Json]:
        times = {"fate": "kept", "told_ms": 10, "join_received_ms": 410}
        members = [{"member_id": f"{one}-1", "client_id": one, **times} for one in who]
        return [came(0, "a-1"), came(60 * S, "b-1") | {"members": members}]

    assert Uncertainty.SOME_JOINS in read(records("a")).doubts
    assert Uncertainty.SOME_JOINS not in read(records("a", "b")).doubts
    assert Uncertainty.SOME_JOINS not in read(records()).doubts
    assert Uncertainty.JOINS in read(records()).doubts


def test_members_that_never_gave_anything_up_are_a_doubt_beside_those_that_did() -> None:
    """An assignor that moves little may never take a partition from one that is slow."""

    def records(*who: str) -> list[Json]:
        times = {"join_received_ms": 10, "join_answered_ms": 20}
        times |= {"sync_received_ms": 30, "sync_answered_ms": 40}
        names = ("a", "b")
        first = [cooperative(f"{one}-1", given_up=one in who, **times) for one in names]
        second = [cooperative(f"{one}-1", given_up=0, **times) for one in names]
        return [
            came(0, "a-1"),
            came(10 * S, "b-1") | {"members": first},
            came(20 * S, "c-1") | {"members": second},
        ]

    doubts = {Uncertainty.SOME_REVOCATIONS, Uncertainty.REVOCATIONS}
    assert doubts & set(read(records("a")).doubts) == {Uncertainty.SOME_REVOCATIONS}
    assert not doubts & set(read(records("a", "b"), cooperative=False).doubts)
    assert doubts & set(read(records()).doubts) == {Uncertainty.REVOCATIONS}


def test_a_group_that_had_a_cooperative_assignor_at_some_time_is_cooperative() -> None:
    first, second = came(0, "a-1") | {"protocol": "range"}, came(60 * S, "b-1")
    assert not read([first, second | {"protocol": "range"}]).recorded.cooperative
    assert read([first, second | {"protocol": "cooperative-sticky"}]).recorded.cooperative


def test_there_is_no_trace_of_a_group_without_rebalances() -> None:
    assert read_trace("g", []) is None


def test_assignments_of_a_share_group_are_no_rebalances() -> None:
    assigned: Json = {"schema": 1, "kind": "assigned", "group": "g", "at_ms": 0, "members": []}
    trigger = {"kind": "member_added", "at_ms": 0, "member_id": "a-1", "client_id": "a"}
    assert read_trace("g", numbered([assigned | {"trigger": trigger}])) is None


def test_the_recorded_week_replayed_under_its_own_settings_comes_to_itself() -> None:
    by_group: dict[str, list[Json]] = {}
    with gzip.open(WEEK, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            by_group.setdefault(record["group"], []).append(record)
    assert set(by_group) == {"billing", "search", "payments"}

    replayed_ms = lived_ms = 0
    for group, records in by_group.items():
        found = read_trace(group, records)
        assert found is not None
        again = predict(found, found.recorded)
        assert abs(again.rebalances - found.rebalances) <= 1
        assert found.stopped_ms is not None
        # The history is one life, and has few stops in one of the groups.
        assert abs(again.stopped_ms - found.stopped_ms) <= 0.2 * found.stopped_ms
        replayed_ms += again.stopped_ms
        lived_ms += found.stopped_ms
    assert abs(replayed_ms - lived_ms) <= 0.05 * lived_ms


def test_a_static_member_that_came_back_went_when_it_fell_silent_where_that_is_told() -> None:
    def records(**told: Change) -> list[Json]:
        added = caused(0, "static_added", "a-1", instance_id="a")
        back = caused(60 * S, "static_replaced", "a-2", instance_id="a", **told)
        return [added, back | {"kind": "avoided", "at_ms": 60 * S}]

    known = read(records(silent_ms=8 * S), **SETTINGS)
    unknown = read(records(), **SETTINGS)

    # Somewhere between its last heartbeat and the next one.
    assert runs_of(known, "a") == [(0, 53 * S, End.LEFT), (60 * S, None, None)]
    assert known.doubts == (Uncertainty.MODE, Uncertainty.JOINS)
    assert runs_of(unknown, "a") == [(0, 60 * S, End.LEFT), (60 * S, None, None)]
    assert Uncertainty.ABSENCES in unknown.doubts


def test_a_static_member_that_an_administrator_removed_has_not_gone_silently() -> None:
    records = [
        caused(0, "static_added", "a-1", instance_id="a"),
        caused(60 * S, "removed_by_admin", "a-1", instance_id="a"),
    ]
    assert runs_of(read(records), "a") == [(0, 60 * S, End.REMOVED)]


def cooperative(member: str, **times: Change) -> Json:
    parts = {"known": True, "given_up_count": times.pop("given_up", 0)}
    return {"member_id": member, "fate": "kept", "mode": "cooperative", "partitions": parts} | times


def test_how_long_a_cooperative_member_takes_to_give_up_is_until_it_joins_again() -> None:
    gives_up = cooperative("a-1", told_ms=100, join_received_ms=103, given_up=2)
    gives_up |= {"join_answered_ms": 110, "sync_received_ms": 111, "sync_answered_ms": 120}
    again = cooperative("a-1", told_ms=300, join_received_ms=2_500)
    found = read(
        [
            came(0, "a-1"),
            came(10 * S, "b-2") | {"members": [gives_up]},
            caused(11 * S, "protocols_changed", "c-3") | {"members": [again]},
        ]
    )
    slot = found.slots[0]

    assert slot.revoke.took_ms == (3_380,)
    assert slot.join.took_ms == (3,), "when it was told amid giving up is no time to join"


def test_a_member_that_says_later_that_it_has_given_up_does_not_join_of_its_own_accord() -> None:
    def rejoins(until_ms: int) -> tuple[Rejoin, ...]:
        member = cooperative("a-1", told_ms=5, join_received_ms=6)
        gives_up = member | {"partitions": {"given_up_count": 1}}
        return read(
            [
                came(0, "a-1"),
                came(60 * S, "b-1") | {"members": [gives_up]},
                caused(61 * S, "protocols_changed", "b-1") | {"members": [member]},
                caused(until_ms, "protocols_changed", "a-1"),
                caused(until_ms + S, "protocols_changed", "a-1"),
            ]
        ).rejoins

    # b has nothing to give up, and joins again of its own accord; so does a the second time.
    assert [one.at_ms for one in rejoins(64 * S)] == [61 * S, 65 * S]
    assert len(rejoins(600 * S)) == 3, "too late to be that"


def test_a_join_that_follows_another_at_once_is_one_of_its_own_kind() -> None:
    def member(told_ms: int, joined_ms: int) -> Json:
        return cooperative(
            "a-1", told_ms=told_ms, join_received_ms=joined_ms, join_answered_ms=joined_ms + 100
        )

    found = read(
        [
            came(0, "a-1"),
            came(60 * S, "b-1") | {"members": [member(400, 410)]},
            came(61 * S, "c-1") | {"members": [member(10, 1_000)]},
            came(90 * S, "d-1") | {"members": [member(300, 304)]},
        ]
    )
    (slot,) = (one for one in found.slots if one.name == "a")
    assert slot.join.took_ms == (10, 4)
    assert slot.again.took_ms == (990,)
    assert (found.default_join_ms, found.default_again_ms) == (7, 990)


def test_the_first_heartbeats_after_a_join_tell_how_often_clients_look() -> None:
    def records(late_ms: int) -> list[Json]:
        first = cooperative("a-1", join_received_ms=0, join_answered_ms=100)
        second = cooperative("a-1", told_ms=2_000 + late_ms, join_received_ms=2_001 + late_ms)
        looked: list[Json] = []
        for at_ms in (600 * S, 1_200 * S):
            looked.append(came(at_ms, "b-1") | {"members": [first]})
            looked.append(caused(at_ms + 100, "follower_rejoined") | {"members": [second]})
        return looked

    assert read(records(20), **SETTINGS).look_ms == 40
    assert read(records(0), **SETTINGS).look_ms == 2
    assert read(records(700), **SETTINGS).look_ms == 100, "it was not the first"


def notified(*times_ms: tuple[int, int], **software: str) -> list[Json]:
    """A rebalance each 61 s, of which one member is notified, and its join answered, so late."""
    records = [came(0, "a-1")]
    for number, (told_ms, answered_ms) in enumerate(times_ms, start=1):
        times = {"told_ms": told_ms, "join_received_ms": told_ms, "join_answered_ms": answered_ms}
        member = cooperative("a-1", **times, **software)
        records.append(came(number * 61 * S, f"b-{number}") | {"members": [member]})
    return records


def test_members_whose_heartbeats_keep_their_times_have_timers_that_run_on() -> None:
    # 61 s are 20 intervals and a second.
    own = ((2_700, 2_900), (1_700, 2_700), (700, 2_100), (2_700, 4_200), (1_700, 3_000))
    restarted = ((1_500, 2_900), (1_900, 2_700), (1_700, 2_100), (1_100, 4_200), (200, 3_000))

    def timer(times_ms: Iterable[tuple[int, int]], **software: str) -> HeartbeatTimer:
        known = SETTINGS | {"heartbeat_interval_ms": 3 * S}
        return read(notified(*times_ms, **software), **known).slots[0].timer

    assert timer(own).runs_on
    assert not timer(restarted).runs_on
    assert timer(restarted, client_software_name="librdkafka").runs_on
    assert not timer(own, client_software_name="apache-kafka-java").runs_on


def test_an_interval_that_no_member_waited_for_shows_in_the_time_between_heartbeats() -> None:
    together = notified(*[(2_200, 6_200)] * 6)
    assert read(together).recorded.heartbeat_interval_ms == 3 * S
    # Of heartbeats at any times, nothing but the longest delay is known.
    apart = notified(*[(told_ms, 3_200) for told_ms in (2_200, 100, 900, 1_400, 300, 1_100)])
    assert read(apart).recorded.heartbeat_interval_ms == 2_500


def test_the_return_of_a_static_member_says_nothing_about_the_interval() -> None:
    records = notified(*[(told_ms, 3_200) for told_ms in (2_200, 100, 900, 1_400, 300, 1_100)])
    late = cooperative("a-2", told_ms=16 * S, join_received_ms=16 * S)
    records[3] = records[3] | {
        "members": [late, cooperative("a-1") | {"fate": "replaced", "replaced_by": "a-2"}]
    }
    assert read(records).recorded.heartbeat_interval_ms == 2_500


def test_timeouts_that_joins_asked_for_are_those_of_the_time() -> None:
    asked = {"session_timeout_ms": 12 * S, "rebalance_timeout_ms": 70 * S}
    found = read([came(0, "a-1") | {"members": [cooperative("a-1", **asked)]}])
    assert found.recorded.session_timeout_ms == 12 * S
    assert found.recorded.rebalance_timeout_ms == 70 * S
    assert not [note for note in found.unknown if "session.timeout" in note or "poll" in note]


@pytest.mark.parametrize(
    ("measured_ms", "extensions_ms", "delay_ms"),
    [(3_017, [], 3_000), (3_040, [], 3_040), (9_060, [6_000, 9_000], 3_000)],
)
def test_the_initial_delay_is_that_of_the_timer_unless_it_was_much_later(
    measured_ms: int, extensions_ms: list[int], delay_ms: int
) -> None:
    timeline = {"join_phase_ms": measured_ms, "extensions_ms": extensions_ms}
    first = came(0, "a-1") | {"initial": True, "timeline": timeline}
    assert read([first]).recorded.initial_rebalance_delay_ms == delay_ms


def test_the_present_assignor_is_that_of_the_last_generation_that_has_one() -> None:
    first, second, third = numbered(came(number * S, "a-1") for number in (1, 2, 3))
    first["protocol"], second["protocol"], third["protocol"] = "range", "sticky", None
    assert read([second, third, first]).assignor == "sticky"
    assert read([third]).assignor is None


def test_whom_rebalances_waited_for_is_added_up_by_process() -> None:
    waits = {"phase": "join", "member_ids": ["b-2"], "ms": 3 * S}
    both = {"phase": "join", "member_ids": ["a-1", "b-2"], "ms": 1 * S}
    found = read(
        [
            came(0, "a-1") | {"initial": True},
            came(10 * S, "b-2") | {"waited_for": waits},
            caused(20 * S, "leader_rejoined", "a-1") | {"waited_for": both},
        ]
    )
    assert found.waited_by_slot == (500, 3_500)
    assert found.initial_rebalances == 1
