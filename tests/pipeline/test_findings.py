"""What is worked out across events: each table of a small history whose groups are the cases."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kohort.broker.core.history.model import WaitedFor
from tests.pipeline.events import BEGIN_MS, CLUSTER, avoided, events, member, rebalance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kohort.broker.core.history.model import HistoryRecord, MemberTimeline, RebalanceRecord


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


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(BEGIN_MS / 1000 + seconds, UTC)


def at(seconds: float) -> datetime:
    """As Spark hands it out: in the time of this machine, without saying so."""
    return moment(seconds).astimezone().replace(tzinfo=None)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, DataFrame]:
    from kohort.pipeline.transformations import history  # noqa: PLC0415

    records = [replace(record, group=name) for name, given in GROUPS.items() for record in given]
    frame = events(spark, *records)
    return {
        "rebalances": history.rebalances(frame).persist(),
        "avoided": history.avoided(frame).persist(),
        "members": history.members(frame).persist(),
    }


def rows_of(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[column] for column in columns) for row in frame.collect())


def test_storms_and_who_began_them(tables: dict[str, DataFrame]) -> None:
    from kohort.pipeline.transformations.storms import storms  # noqa: PLC0415

    found = storms(tables["rebalances"], tables["members"], quiet_ms=60_000, size=3).persist()
    assert rows_of(found, "group", "first_sequence", "rebalance_count", "started_by") == [
        ("deploy", 1, 6, "deploy"),
        ("follow-ups", 1, 3, "several"),
        ("one member", 1, 4, "member"),
        ("scale out", 1, 3, "scale_out"),
    ]
    counts = rows_of(found, "group", "left_count", "new_count", "follow_up_count", "member_count")
    assert counts == [
        ("deploy", 3, 3, 0, 6),
        ("follow-ups", 0, 0, 2, 3),
        ("one member", 2, 2, 0, 1),
        ("scale out", 0, 3, 0, 3),
    ]
    (member_storm,) = found.where("`group` = 'one member'").collect()
    assert (member_storm["main_client_id"], member_storm["main_client_count"]) == ("app", 4)
    assert (member_storm["first_cause"], member_storm["first_member_id"]) == (
        "member_left",
        "app-0",
    )
    assert member_storm["causes"] == ["member_added", "member_left"]
    assert (member_storm["started_at"], member_storm["ended_at"]) == (at(0), at(7.5))
    assert member_storm["duration_ms"] == 7_500


def test_flapping_partitions_are_those_that_moved_often_in_a_while(spark: SparkSession) -> None:
    from kohort.pipeline.schemas import PARTITIONS  # noqa: PLC0415
    from kohort.pipeline.transformations.flapping import flapping  # noqa: PLC0415

    def owned(partition: int, *times: tuple[str, float]) -> list[dict[str, Any]]:
        return [
            {
                "cluster_id": CLUSTER,
                "group": "g",
                "topic": "t",
                "partitions": [partition],
                "sequence": sequence,
                "state": "owned",
                "owner": owner,
                "from_at": moment(seconds),
            }
            for sequence, (owner, seconds) in enumerate(times)
        ]

    rows = [
        *owned(0, ("a", 0), ("b", 10), ("b", 12), ("a", 20), ("c", 30), ("c", 4_000)),
        *owned(1, ("a", 0), ("b", 4_000), ("a", 8_000), ("b", 12_000)),
        *owned(2, ("a", 0), ("a", 10), ("a", 20), ("a", 30)),
    ]
    table = spark.createDataFrame(rows, PARTITIONS.schema)
    found = flapping(table, moves=3, window_ms=3_600_000).collect()
    assert [tuple(row)[3:] for row in found] == [(0, 3, 3, at(30), 3, 1, 10_000)]


def test_slow_members_are_those_that_were_waited_for(tables: dict[str, DataFrame]) -> None:
    from kohort.pipeline.transformations.waiting import slow_members  # noqa: PLC0415

    found = slow_members(tables["rebalances"], tables["members"]).persist()
    assert rows_of(
        found,
        "process",
        "waited_for_count",
        "waited_for_total_ms",
        "waited_for_longest_ms",
        "for_join_count",
        "for_assignment_count",
        "missed_count",
    ) == [("slow", 2, 1_280, 880, 1, 1, 1), ("unlisted-1", 1, 400, 400, 0, 1, 0)]
    (slow,) = found.where("process = 'slow'").collect()
    assert (slow["join_count"], slow["join_delay_longest_ms"]) == (2, 800)
    assert (slow["join_delay_p50_ms"], slow["join_delay_p99_ms"]) == (400, 800)
    assert (slow["host"], slow["last_at"]) == ("/10.0.0.1", at(200))


def test_heartbeat_gaps_are_how_long_it_took_to_be_told(tables: dict[str, DataFrame]) -> None:
    from kohort.pipeline.transformations.waiting import heartbeat_gaps  # noqa: PLC0415

    found = heartbeat_gaps(tables["rebalances"], tables["members"])
    assert sorted(tuple(row)[1:] for row in found.where("process != 'app'").collect()) == [
        ("waiting", "dead", 0, None, None, None, None, 1, 45_000),
        ("waiting", "quick", 2, 10, 30, 30, 30, 0, None),
        ("waiting", "slow", 2, 100, 200, 200, 200, 0, None),
    ]


def test_causes_count_what_happened_and_what_did_not(tables: dict[str, DataFrame]) -> None:
    from kohort.pipeline.transformations.summaries import causes  # noqa: PLC0415

    found = causes(tables["rebalances"], tables["avoided"]).where("`group` = 'needless'")
    assert sorted(tuple(row)[2:] for row in found.collect()) == [
        ("leader_rejoined", 1, 1, 1, 30, 30, 500, at(100)),
        ("member_added", 1, 0, 0, 50, 50, 500, at(300)),
    ]


def test_needless_rebalances_are_listed(tables: dict[str, DataFrame]) -> None:
    from kohort.pipeline.transformations.summaries import needless  # noqa: PLC0415

    found = needless(tables["rebalances"]).where("`group` = 'needless'")
    columns = ("sequence", "trigger_kind", "stopped_total_ms", "members_after")
    assert rows_of(found, *columns) == [(1, "leader_rejoined", 30, 0)]


def test_gaps_in_the_sequence_are_told_and_their_beginning_is_none(
    spark: SparkSession, tables: dict[str, DataFrame]
) -> None:
    from kohort.pipeline.transformations import history, parsing  # noqa: PLC0415
    from kohort.pipeline.transformations.summaries import numbers, sequence_gaps  # noqa: PLC0415

    running = replace(rebalance(7, 500, outcome="running"), group="gaps")
    told = history.running(parsing.unfinished(events(spark, running)))
    found = sequence_gaps(numbers(tables["rebalances"], tables["avoided"]), told)
    columns = ("group", "from_sequence", "to_sequence", "missing_count", "running_count")
    assert rows_of(found, *columns) == [("gaps", 6, 8, 3, 1), ("gaps", 10, 10, 1, 0)]
    moments = rows_of(found, "from_sequence", "after_at", "before_at")
    assert moments == [(6, at(300), at(600)), (10, at(600), at(900))]


def test_a_group_is_one_row(spark: SparkSession, tables: dict[str, DataFrame]) -> None:
    from kohort.pipeline.schemas import STORMS, UNAVAILABILITY  # noqa: PLC0415
    from kohort.pipeline.transformations.summaries import groups  # noqa: PLC0415

    idle = [
        {"cluster_id": CLUSTER, "group": "gaps", "partition": number, "total_ms": 30}
        for number in (1, 2)
    ]
    storm = [{"cluster_id": CLUSTER, "group": "needless", "first_sequence": 1}]
    found = groups(
        tables["rebalances"],
        tables["avoided"],
        spark.createDataFrame(idle, UNAVAILABILITY.schema),
        spark.createDataFrame(storm, STORMS.schema),
    ).where("`group` in ('gaps', 'needless')")
    assert sorted(tuple(row)[1:] for row in found.collect()) == [
        ("gaps", 4, 11, 4, 4, at(0), at(900), 3, 1, 0, 0, 0, 60, 0),
        ("needless", 1, 3, 3, 0, at(0), at(300), 2, 1, 1, 80, 50, 0, 1),
    ]
