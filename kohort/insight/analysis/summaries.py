"""Summarizes a group: needless rebalances, missing events, and one row of totals."""

from collections.abc import Sequence
from itertools import pairwise

from kohort.insight.analysis.rows import Avoided, Rebalance, Running, longest, total
from kohort.insight.tables.findings import (
    GroupRow,
    NeedlessRebalance,
    SequenceGap,
    Storm,
    Unavailability,
)


def needless(rebalances: Sequence[Rebalance]) -> list[NeedlessRebalance]:
    return [
        NeedlessRebalance(*(getattr(row, name) for name in NeedlessRebalance._fields))
        for row in rebalances
        if row.needless
    ]


def sequence_gaps(
    rebalances: Sequence[Rebalance], avoided: Sequence[Avoided], running: Sequence[Running]
) -> list[SequenceGap]:
    """Return the runs of missing sequence numbers between two events."""
    known = {row.sequence for row in running}
    return [
        SequenceGap(
            before + 1,
            after - 1,
            after - before - 1,
            before_at,
            after_at,
            sum(before < sequence < after for sequence in known),
        )
        for (before, before_at), (after, after_at) in pairwise(_numbers(rebalances, avoided))
        if after > before + 1
    ]


def group(
    rebalances: Sequence[Rebalance],
    avoided: Sequence[Avoided],
    idle: Sequence[Unavailability],
    bursts: Sequence[Storm],
) -> list[GroupRow]:
    """Return one row, or an empty list for a group without events."""
    numbers = _numbers(rebalances, avoided)
    if not numbers:
        return []
    first, last = numbers[0][0], numbers[-1][0]
    moments = [at for _, at in numbers if at is not None]
    return [
        GroupRow(
            first,
            last,
            len(numbers),
            last - first + 1 - len(numbers),
            min(moments, default=None),
            max(moments, default=None),
            len(rebalances),
            len(avoided),
            sum(row.needless is True for row in rebalances),
            total([row.stopped_total_ms for row in rebalances]) or 0,
            longest([row.stopped_longest_ms for row in rebalances]) or 0,
            total([row.total_ms for row in idle]) or 0,
            len(bursts),
        )
    ]


def _numbers(
    rebalances: Sequence[Rebalance], avoided: Sequence[Avoided]
) -> list[tuple[int, int | None]]:
    """Return the sequence number and time of each event, in order."""
    return sorted(
        [
            *((row.sequence, row.started_at) for row in rebalances),
            *((avoided_row.sequence, avoided_row.at) for avoided_row in avoided),
        ],
        key=lambda pair: pair[0],
    )
