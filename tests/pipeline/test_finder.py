"""A group whose members are taken some at a time is found to be what it is when taken at once."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from kohort.insight.analysis.finder import Finder, Rows, Thresholds, compute_findings
from kohort.insight.analysis.rows import GroupHistory
from kohort.insight.tables.findings import Interval
from tests.pipeline.events import avoided, histories, member, rebalance

if TYPE_CHECKING:
    from kohort.groups.history.model import HistoryRecord

LIMITS = Thresholds(days=1, storm_size=2, flapping_moves=2)
NAMES = ("a-1", "b-1", "c-1")


def some_history(chance: random.Random) -> GroupHistory:
    """Three members and six partitions that move among them; some of it is not known, or wrong."""
    at_s = 0.0
    records: list[HistoryRecord] = []
    for sequence in range(1, 25):
        at_s += chance.choice([1.0, 30.0, 900.0, 20_000.0])
        if chance.random() < 0.1:
            continue
        if chance.random() < 0.1:
            records.append(avoided(sequence, at_s))
            continue
        moved = [f"t-{number}" for number in range(6) if chance.random() < 0.3]
        giver, taker = chance.sample(NAMES, 2)
        members = []
        for name in NAMES:
            join = chance.randrange(400)
            given_up = moved if name == giver and chance.random() < 0.8 else []
            if name == giver and chance.random() < 0.3:
                fate = chance.choice(["session_expired", "rebalance_timeout", "left"])
                members.append(member(name, fate=fate, fate_ms=join, given_up=given_up))
                continue
            members.append(
                member(
                    name,
                    join=join,
                    sync=join + chance.randrange(1, 400),
                    mode=chance.choice(["eager", "cooperative"]),
                    fate=chance.choice(["kept", "new", "replaced"]),
                    given_up=given_up,
                    gained=moved if name == taker else [],
                    told_ms=chance.randrange(50),
                )
            )
        trigger = chance.choice(["member_added", "session_expired"])
        records.append(rebalance(sequence, at_s, *members, trigger=trigger, by=giver))
    (found,) = histories(*records).values()
    return found


def found_in_parts(history: GroupHistory, chance: random.Random) -> dict[str, Rows]:
    """Cut between events, some parts without a member."""
    about = GroupHistory(history.cluster_id, history.group)
    about.rebalances, about.avoided, about.running = (
        history.rebalances,
        history.avoided,
        history.running,
    )
    finder = Finder(about, LIMITS)
    cuts = sorted({0, 30, *(chance.randrange(1, 30) for _ in range(chance.randrange(8)))})
    owned: list[tuple[Any, ...]] = []
    for first, end in pairwise(cuts):
        part = [row for row in history.members if first <= row.sequence < end]
        owned += finder.add(part, is_last=end == cuts[-1])
    return {"partitions": owned, **finder.finish()}


def of_each_partition(rows: Rows) -> Counter[tuple[Any, ...]]:
    return Counter(
        (*one._replace(partitions=()), partition)
        for one in rows
        if isinstance(one, Interval)
        for partition in one.partitions
    )


@pytest.mark.parametrize("seed", range(60))
def test_a_group_in_parts_is_the_group_as_a_whole(seed: int) -> None:
    chance = random.Random(seed)
    history = some_history(chance)
    whole, parts = compute_findings(history, LIMITS), found_in_parts(history, chance)
    assert of_each_partition(whole["partitions"]) == of_each_partition(parts["partitions"])
    for name in whole.keys() - {"partitions"}:
        assert sorted(map(repr, whole[name])) == sorted(map(repr, parts[name])), name
