"""What is worked out across events: each table of a small history whose groups are the cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from kohort.groups.history import names
from kohort.groups.history.model import WaitedFor
from kohort.groups.steps import at_once
from kohort.insight import event_rows
from kohort.insight.analysis.acts import act_steps
from kohort.insight.analysis.episodes import Moves
from kohort.insight.analysis.finder import Thresholds, compute_findings
from kohort.insight.analysis.flapping import OwnershipIntervals
from kohort.insight.analysis.rows import by_sequence, read_histories
from kohort.insight.analysis.summaries import needless, sequence_gaps, storms
from kohort.insight.analysis.wait_times import WaitTimes, percentile
from kohort.insight.tables.findings import (
    FINDINGS,
    Act,
    Flapping,
    GroupRow,
    HeartbeatGap,
    Interval,
    NeedlessRebalance,
    SequenceGap,
    SlowMember,
    Storm,
    Unavailability,
)
from kohort.insight.tables.history import AVOIDED, MEMBERS, REBALANCES, RUNNING
from kohort.pipeline.arrow import from_rows
from kohort.pipeline.findings_in_arrow import SCHEMAS, tables_of
from kohort.pipeline.findings_in_arrow import histories as histories_in
from tests.pipeline.events import BEGIN_MS, CLUSTER, avoided, histories, member, rebalance
from tests.unit.insight.report.pages import week

if TYPE_CHECKING:
    from kohort.groups.history.model import HistoryRecord, MemberTimeline, RebalanceRecord
    from kohort.insight.analysis.rows import Member


def went(member_id: str, host: str) -> MemberTimeline:
    return member(member_id, fate="left", fate_ms=0, host=host)


def came(member_id: str, host: str) -> MemberTimeline:
    return member(member_id, join=0, sync=100, fate="new", host=host)


def coming_and_going(hosts: list[str]) -> list[RebalanceRecord]:
    """Every five seconds one goes, and two seconds later one comes, on the next of `hosts`."""
    records = []
    for turn, host in enumerate(hosts):
        old, new = f"app-{turn}", f"app-{turn + 1}"
        records.append(
            rebalance(2 * turn + 1, 5 * turn, went(old, host), trigger="member_left", by=old)
        )
        records.append(
            rebalance(2 * turn + 2, 5 * turn + 2, came(new, host), trigger="member_added", by=new)
        )
    return records


def by_name(name: str, records: list[RebalanceRecord]) -> list[RebalanceRecord]:
    """The causes told of by different clients."""
    return [
        replace(record, trigger=replace(record.trigger, client_id=f"{name}-{number}"))
        for number, record in enumerate(records)
    ]


GROUPS: dict[str, list[HistoryRecord]] = {
    "deploy": [*by_name("pod", coming_and_going(["/1", "/2", "/3"]))],
    "one member": [*coming_and_going(["/1", "/1"])],
    "scale out": [
        *by_name(
            "pod",
            [
                rebalance(
                    n,
                    5 * n,
                    replace(came(f"pod{n}-1", f"/{n}"), client_id=f"pod{n}"),
                    by=f"pod{n}-1",
                )
                for n in (1, 2, 3)
            ],
        )
    ],
    "calm": [rebalance(n, 600 * n) for n in (1, 2, 3)],
    "follow-ups": [
        rebalance(1, 0, by="a-1", outcome="superseded", superseded_by=2, finished=90_000),
        rebalance(2, 600, by="b-1", follows=1),
        rebalance(3, 1_200, by="c-1", follows=2),
    ],
    "waiting": [
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
            member("quick-1", join=40, sync=1_000, told_ms=30),
            waited_for=WaitedFor(phase="sync", member_ids=("slow-2", "unlisted-1"), ms=400),
        ),
        rebalance(
            3,
            200,
            member("slow-2", fate="rebalance_timeout", fate_ms=9_000),
            member("dead-1", fate="session_expired", fate_ms=0),
            trigger="session_expired",
            by="dead-1",
            waited_for=WaitedFor(phase="initial_delay", ms=3_000),
        ),
    ],
    "needless": [
        rebalance(1, 0, member("a-1", join=0, sync=30, kept=1), trigger="leader_rejoined"),
        avoided(2, 100),
        rebalance(3, 300, member("a-1", join=0, sync=50, gained=["t-1"])),
    ],
    "gaps": [rebalance(4, 0), avoided(5, 300), rebalance(9, 600), rebalance(11, 900)],
}


def at(seconds: float) -> int:
    return BEGIN_MS + round(seconds * 1000)


HISTORIES = histories(
    *(replace(record, group=name) for name, given in GROUPS.items() for record in given)
)


def members_of(name: str) -> dict[int, list[Member]]:
    return by_sequence(HISTORIES[name].members)


def waiting(name: str) -> WaitTimes:
    return WaitTimes().add(HISTORIES[name].rebalances, members_of(name))


def test_storms_are_periods_with_many_rebalances() -> None:
    found = {
        name: storm
        for name, history in HISTORIES.items()
        for storm in storms(history.rebalances, quiet_ms=60_000, size=3)
    }
    assert {
        name: (
            storm.first_sequence,
            storm.rebalance_count,
            storm.follow_up_count,
            storm.member_count,
        )
        for name, storm in found.items()
    } == {
        "deploy": (1, 6, 0, 6),
        "follow-ups": (1, 3, 2, 3),
        "one member": (1, 4, 0, 1),
        "scale out": (1, 3, 0, 3),
    }
    storm = found["one member"]
    assert (storm.main_client_id, storm.main_client_count) == ("app", 4)
    assert (storm.first_cause, storm.first_member_id) == ("member_left", "app-0")
    assert storm.causes == ["member_added", "member_left"]
    assert (storm.started_at, storm.ended_at, storm.duration_ms) == (at(0), at(7.5), 7_500)


def test_flapping_partitions_are_those_that_moved_often_in_a_while() -> None:
    def owned(partition: int, *times: tuple[str, float]) -> list[Interval]:
        nothing = Interval("t", (partition,), 0, "owned", *[None] * 11)  # type: ignore[arg-type]
        return [
            nothing._replace(sequence=sequence, owner=owner, from_at=at(seconds))
            for sequence, (owner, seconds) in enumerate(times)
        ]

    stints = OwnershipIntervals()
    stints.add(
        [
            *owned(0, ("a", 0), ("b", 10), ("b", 12), ("a", 20), ("c", 30), ("c", 4_000)),
            *owned(1, ("a", 0), ("b", 4_000), ("a", 8_000), ("b", 12_000)),
            *owned(2, ("a", 0), ("a", 10), ("a", 20), ("a", 30)),
        ]
    )
    found = stints.flapping(moves=3, window_ms=3_600_000)
    assert found == [("t", 0, 3, 3, at(30), 3, 1, 10_000)]


def test_slow_members_are_those_that_were_waited_for() -> None:
    found = waiting("waiting").slow_members()
    slow, unlisted = sorted(found, key=lambda row: str(row.process))
    assert slow[:3] == ("slow", "slow", "/10.0.0.1")
    assert slow[3:8] == (2, 1_280, 880, 1, 1)
    assert (slow.join_count, slow.join_delay_longest_ms, slow.missed_count) == (2, 800, 1)
    assert (slow.join_delay_p50_ms, slow.join_delay_p99_ms) == (400, 800)
    assert slow.last_at == at(200)
    assert unlisted[:8] == ("unlisted-1", None, None, 1, 400, 400, 0, 1)
    for name in HISTORIES:
        if name != "waiting":
            assert not waiting(name).slow_members()


def test_heartbeat_gaps_are_how_long_it_took_to_be_told() -> None:
    found = waiting("waiting").heartbeat_gaps()
    assert sorted(found) == [
        ("dead", 0, None, None, None, None, 1, 45_000, None),
        ("quick", 2, 10, 30, 30, 30, 0, None, None),
        ("slow", 2, 100, 200, 200, 200, 0, None, None),
    ]


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2), (0.9, 4), (0.99, 4), (0.25, 1)])
def test_a_percentile_is_the_smallest_value_that_the_share_is_not_above(
    share: float, expected: int
) -> None:
    assert percentile([1, 2, 3, 4], share) == expected
    assert percentile([], share) is None


def test_acts_have_the_rebalances_that_they_caused() -> None:
    def found(name: str) -> list[tuple[str, int, int, int]]:
        moves = Moves()
        moves.add(members_of(name))
        return [
            (act.kind, act.process_count, act.rebalance_count, act.needless_count)
            for act in at_once(
                act_steps(HISTORIES[name].rebalances, HISTORIES[name].avoided, moves)
            )
        ]

    assert found("needless") == [("rejoined", 0, 1, 1), ("scale_out", 0, 1, 0)]
    assert found("scale out") == [("scale_out", 3, 3, 0)]
    assert found("one member") == [("restart", 1, 2, 1), ("restart", 1, 2, 1)]


def test_needless_rebalances_are_listed() -> None:
    (found,) = needless(HISTORIES["needless"].rebalances)
    assert (found.sequence, found.trigger_kind) == (1, "leader_rejoined")
    assert (found.stopped_total_ms, found.members_after) == (30, 0)


def test_gaps_in_the_sequence_are_told_and_their_beginning_is_none() -> None:
    running = replace(rebalance(7, 500, outcome="running"), group="gaps")
    gaps = histories(*(replace(record, group="gaps") for record in GROUPS["gaps"]), running)["gaps"]
    assert sequence_gaps(gaps.rebalances, gaps.avoided, gaps.running) == [
        (6, 8, 3, at(300), at(600), 1),
        (10, 10, 1, at(600), at(900), 0),
    ]


def test_a_group_is_one_row() -> None:
    found = {name: compute_findings(HISTORIES[name], Thresholds()) for name in ("gaps", "needless")}
    assert found["gaps"]["groups"] == [(4, 11, 4, 4, at(0), at(900), 3, 1, 0, 0, 0, 0, 0)]
    assert found["needless"]["groups"] == [(1, 3, 3, 0, at(0), at(300), 2, 1, 1, 80, 50, 0, 0)]


def test_only_the_last_days_are_looked_at() -> None:
    day = 86_400
    given = [rebalance(n, n * 20 * day, member("a-1", join=0, sync=9, kept=1)) for n in (1, 2, 3)]
    (history,) = histories(*given).values()
    found = compute_findings(history, Thresholds(days=30))
    (group,) = found["groups"]
    assert (group[2], group[6]) == (3, 3)
    assert [row[Act._fields.index("rebalance_count")] for row in found["acts"]] == [1, 1]
    assert [row[0] for row in found["needless"]] == [2, 3]


def test_the_tables_of_the_history_have_what_the_findings_need() -> None:
    """The recorded week has the same findings, computed from its records and from their rows."""
    records = [record for of_group in week().values() for record in of_group]
    rebalances = [one for one in records if one["kind"] == names.REBALANCE]
    rows = {
        REBALANCES: map(event_rows.rebalance, rebalances),
        MEMBERS: chain.from_iterable(map(event_rows.members, rebalances)),
        AVOIDED: (event_rows.avoided(one) for one in records if one["kind"] == names.AVOIDED),
        RUNNING: (),
    }
    in_cluster = {
        table.name: from_rows(table, [{"cluster_id": CLUSTER, **row} for row in of_table])
        for table, of_table in rows.items()
    }
    from_tables = tables_of(histories_in(in_cluster), Thresholds())
    assert from_tables == tables_of(read_histories(CLUSTER, records), Thresholds())


@pytest.mark.parametrize("name", [*GROUPS])
def test_the_rows_are_in_the_order_of_the_columns_of_their_tables(name: str) -> None:
    tables = tables_of([HISTORIES[name]], Thresholds(storm_size=1))
    for table in FINDINGS:
        assert tables[table.name].schema.equals(SCHEMAS[table.name])
    for rows, kind in (
        ("partitions", Interval),
        ("unavailability", Unavailability),
        ("storms", Storm),
        ("flapping", Flapping),
        ("slow_members", SlowMember),
        ("heartbeat_gaps", HeartbeatGap),
        ("acts", Act),
        ("needless", NeedlessRebalance),
        ("sequence_gaps", SequenceGap),
        ("groups", GroupRow),
    ):
        assert SCHEMAS[rows].names == ["cluster_id", "group", *kind._fields]
