"""Selects the members to list in a rebalance's record, if there are more than it may list."""

from collections.abc import Sequence
from dataclasses import dataclass

from kohort.groups.events import MemberRef
from kohort.groups.history.facts import Departure, RebalanceFacts
from kohort.groups.steps import FEW, Steps


@dataclass(slots=True, eq=False)
class Row:
    """A member that the record may list."""

    member: MemberRef
    gone: Departure | None
    is_new: bool
    is_of_phase: bool = True
    """False if the member had left before the end of the join phase, or joined after it."""
    owns: bool = False
    """Whether the member's join listed owned partitions."""
    stopped_ms: int | None = None
    stopped_open: bool = False
    mode: str | None = None


def select_rows(rows: Sequence[Row], facts: RebalanceFacts, most: int) -> Steps[list[Row]]:
    """Return only `most` rows, in the order of `rows`. Members that the record names are selected
    first, then members that left or are still interrupted, then those interrupted for longest, then
    earlier rows.
    """
    named = _named_ids(facts)
    yield
    weights: list[int] = []
    size = len(rows)
    for index, row in enumerate(rows):
        is_gone = row.gone is not None or row.stopped_open
        rank = 2 * (row.member.member_id in named) + is_gone
        # Encode each row's place as one number: thousands of numbers are sorted in a millisecond.
        weights.append(((rank << 64) + (row.stopped_ms or 0)) * size - index)
        if index % FEW == 0:
            yield
    least = sorted(weights)[-most]
    yield
    return [row for row, weight in zip(rows, weights, strict=True) if weight >= least]


def _named_ids(facts: RebalanceFacts) -> set[str]:
    trigger = facts.started.trigger
    ids = {*facts.awaited.member_ids, *trigger.removed}
    if trigger.member is not None:
        ids.add(trigger.member.member_id)
    if facts.join_phase is not None and facts.join_phase.leader is not None:
        ids.add(facts.join_phase.leader)
    return ids
