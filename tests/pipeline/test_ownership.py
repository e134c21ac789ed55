"""Owners of each partition over time: a few rebalances each, with every interval that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest

from kohort.insight.analysis import ownership
from tests.pipeline.events import BEGIN_MS, GROUP, histories, member, rebalance

if TYPE_CHECKING:
    from kohort.groups.history.model import RebalanceRecord
    from kohort.insight.analysis.rows import GroupHistory
    from kohort.insight.tables.findings import Interval

Told: TypeAlias = tuple[str, int, str | None, int, int | None, str | None]
"""State, sequence, owner, from and until in ms since the beginning, what ended it."""


ONE = rebalance(1, 0, member("a-1", join=0, sync=3_000, fate="new", gained=["t-0"]))
FIRST = rebalance(
    1, 0, member("a-1", join=0, sync=3_000, fate="new", gained=["t-0", "with-dash-1"])
)


SCENARIOS: dict[str, tuple[list[RebalanceRecord], dict[str, list[Told]]]] = {
    "eager members stop with all they have": (
        [
            FIRST,
            rebalance(
                2,
                10,
                member("a-1", join=100, sync=400, kept=1, given_up=["with-dash-1"]),
                member("b-1", join=0, sync=450, gained=["with-dash-1"], fate="new"),
            ),
            rebalance(
                3,
                20,
                member("a-1", fate="session_expired", fate_ms=0, given_up=["t-0"]),
                member("b-1", join=50, sync=90, kept=1, gained=["t-0"]),
                trigger="session_expired",
                by="a-1",
            ),
        ],
        {
            "t-0": [
                ("owned", 1, "a-1", 3_000, 10_100, "stopped"),
                ("unavailable", 2, "a-1", 10_100, 10_400, "assigned"),
                ("owned", 2, "a-1", 10_400, 20_000, "session_expired"),
                ("unavailable", 3, "a-1", 20_000, 20_090, "assigned"),
                ("owned", 3, "b-1", 20_090, None, None),
            ],
            "with-dash-1": [
                ("owned", 1, "a-1", 3_000, 10_100, "stopped"),
                ("unavailable", 2, "a-1", 10_100, 10_450, "assigned"),
                ("owned", 2, "b-1", 10_450, 20_050, "stopped"),
                ("unavailable", 3, "b-1", 20_050, 20_090, "assigned"),
                ("owned", 3, "b-1", 20_090, None, None),
            ],
        },
    ),
    "cooperative members go on with what they keep": (
        [
            FIRST,
            rebalance(
                2,
                10,
                member(
                    "a-1",
                    join=100,
                    sync=400,
                    mode="cooperative",
                    kept=1,
                    given_up=["with-dash-1"],
                ),
                member("b-1", join=0, sync=400, mode="cooperative", fate="new"),
            ),
            rebalance(
                3,
                10.5,
                member("a-1", join=10, sync=60, mode="cooperative", kept=1),
                member("b-1", join=20, sync=70, mode="cooperative", gained=["with-dash-1"]),
                follows=2,
            ),
        ],
        {
            "t-0": [("owned", 1, "a-1", 3_000, None, None)],
            "with-dash-1": [
                ("owned", 1, "a-1", 3_000, 10_400, "given_up"),
                ("unavailable", 2, "a-1", 10_400, 10_570, "assigned"),
                ("owned", 3, "b-1", 10_570, None, None),
            ],
        },
    ),
    "a stop goes on through a rebalance that is superseded": (
        [
            ONE,
            rebalance(
                2,
                10,
                member("a-1", join=100, stopped_open=True),
                outcome="superseded",
                superseded_by=3,
            ),
            rebalance(3, 12, member("a-1", join=5, sync=30, kept=2), follows=2),
        ],
        {
            "t-0": [
                ("owned", 1, "a-1", 3_000, 10_100, "stopped"),
                ("unavailable", 2, "a-1", 10_100, 12_030, "assigned"),
                ("owned", 3, "a-1", 12_030, None, None),
            ],
        },
    ),
    "a static member owns under its instance id": (
        [
            rebalance(
                1, 0, member("x-1", instance_id="x", join=0, sync=10, fate="new", gained=["t-0"])
            ),
            rebalance(
                2,
                10,
                member("x-1", instance_id="x", fate="replaced", fate_ms=0, replaced_by="x-2"),
                member("x-2", instance_id="x", join=0, sync=20, kept=1),
                trigger="static_replaced",
                by="x-2",
            ),
            rebalance(
                3, 20, member("x-2", instance_id="x", fate="left", fate_ms=0, given_up=["t-0"])
            ),
        ],
        {
            "t-0": [
                ("owned", 1, "x", 10, 10_000, "stopped"),
                ("unavailable", 2, "x", 10_000, 10_020, "assigned"),
                ("owned", 2, "x", 10_020, 20_000, "left"),
                ("unavailable", 3, "x", 20_000, None, None),
            ],
        },
    ),
    "an owner that vanishes in a gap has no known end": (
        [ONE, rebalance(7, 60, member("c-1", join=0, sync=10, gained=["t-0"]))],
        {
            "t-0": [
                ("owned", 1, "a-1", 3_000, None, "unknown"),
                ("owned", 7, "c-1", 60_010, None, None),
            ],
        },
    ),
    "a history that begins late begins with what it names": (
        [rebalance(41, 0, member("a-1", join=100, sync=300, kept=5, given_up=["t-0"]))],
        {"t-0": [("unavailable", 41, "a-1", 100, None, None)]},
    ),
    "names that are no partitions are passed over": (
        [
            rebalance(
                1,
                0,
                member(
                    "a-1",
                    join=0,
                    sync=10,
                    fate="new",
                    gained=["t", "t-", "-1", "t-x", "t-99999999999", "a…z-1"],
                ),
            )
        ],
        {"a…z-1": [("owned", 1, "a-1", 10, None, None)]},
    ),
}


def intervals(history: GroupHistory) -> list[Interval]:
    rebalances = {row.sequence: row for row in history.rebalances}
    return ownership.Ownership(rebalances, None).add(history.members, is_last=True)


@pytest.mark.parametrize("name", SCENARIOS)
def test_ownership(name: str) -> None:
    given, expected = SCENARIOS[name]
    found: dict[str, list[Told]] = {}
    for row in intervals(histories(*given)[GROUP]):
        until = None if row.until_at is None else row.until_at - BEGIN_MS
        begin = row.from_at - BEGIN_MS
        assert row.duration_ms == (None if until is None else until - begin)
        for partition in row.partitions:
            found.setdefault(f"{row.topic}-{partition}", []).append(
                (row.state, row.sequence, row.owner, begin, until, row.ended_by)
            )
    assert found == expected


def test_intervals_that_ended_before_a_moment_are_left_out() -> None:
    given, _ = SCENARIOS["eager members stop with all they have"]
    history = histories(*given)[GROUP]
    rebalances = {row.sequence: row for row in history.rebalances}
    about = ownership.Ownership(rebalances, BEGIN_MS + 20_000)
    found = about.add(history.members, is_last=True)
    begin = BEGIN_MS + 20_000
    assert all(row.until_at is None or row.until_at >= begin for row in found)
    # Its stop in between was long ago as well, and is not looked for.
    (first,) = [row for row in found if row.sequence == 1]
    assert (first.topic, first.until_at, first.ended_by) == ("t", begin, "session_expired")


def test_unavailability_is_summed_by_partition_and_cause() -> None:
    history = histories(
        FIRST,
        rebalance(2, 10, member("a-1", join=100, sync=400, kept=2)),
        rebalance(3, 20, member("a-1", join=100, sync=200, kept=2)),
        rebalance(
            4,
            30,
            member("a-1", fate="session_expired", fate_ms=0, given_up=["t-0"]),
            trigger="session_expired",
            by="a-1",
            outcome="empty",
        ),
    )[GROUP]
    found = intervals(history)
    (expired,) = [
        row
        for row in found
        if row.ended_by is None and row.state == "unavailable" and row.topic == "t"
    ]
    assert (expired.cause_member_id, expired.unnoticed_ms_max) == ("a-1", 45_000)
    idle = ownership.Idle()
    idle.add(found)
    assert sorted(idle.rows()) == [
        ("t", 0, "member_added", 2, 400, 300, 0, BEGIN_MS + 20_100),
        ("t", 0, "session_expired", 1, 0, 0, 1, BEGIN_MS + 30_000),
        ("with-dash", 1, "member_added", 2, 400, 300, 0, BEGIN_MS + 20_100),
        ("with-dash", 1, "session_expired", 1, 0, 0, 1, BEGIN_MS + 30_000),
    ]


def test_partitions_that_always_moved_together_are_one_row() -> None:
    history = histories(
        rebalance(
            1, 0, member("a-1", join=0, sync=10, fate="new", gained=["t-3", "t-0", "t-1", "u-1"])
        ),
        rebalance(
            2,
            10,
            member("a-1", join=0, sync=10, kept=3, given_up=["t-1"]),
            member("b-1", join=5, sync=10, fate="new", gained=["t-1"]),
        ),
    )[GROUP]
    found = intervals(history)
    sets = sorted({(row.topic, row.partitions) for row in found})
    assert sets == [("t", (0, 3)), ("t", (1,)), ("u", (1,))]
    owned = [row.partitions for row in found if row.state == "owned"]
    assert sorted(owned) == sorted(2 * [one for _, one in sets])
