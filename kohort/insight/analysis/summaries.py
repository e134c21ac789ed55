"""Summarizes a group: storms, needless rebalances, missing events, and one row of totals."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kohort.insight.analysis.rows import Avoided, Rebalance, Running, between_ms, longest, total
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
    """Return the group's row of totals, in a list that is empty for a group without events."""
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


def storms(rebalances: Sequence[Rebalance], *, quiet_ms: int, size: int) -> list[Storm]:
    """Return the runs of at least `size` rebalances with gaps of at most `quiet_ms`."""
    return [_storm(burst) for burst in _bursts(rebalances, quiet_ms) if len(burst) >= size]


def _bursts(rebalances: Sequence[Rebalance], quiet_ms: int) -> Iterator[list[Rebalance]]:
    burst: list[Rebalance] = []
    last_end: int | None = None
    for row in rebalances:
        is_continued = between_ms(last_end, row.started_at) <= quiet_ms or row.follows is not None
        if burst and not is_continued:
            yield burst
            burst = []
        burst.append(row)
        last_end = longest([last_end, row.started_at if row.ended_at is None else row.ended_at])
    if burst:
        yield burst


def _storm(burst: Sequence[Rebalance]) -> Storm:
    first = burst[0]
    started_at = min((row.started_at for row in burst if row.started_at is not None), default=None)
    has_ended = all(row.ended_at is not None for row in burst)
    ended_at = longest([row.ended_at for row in burst]) if has_ended else None
    clients = Counter(
        (row.trigger_client_id, row.trigger_host)
        for row in burst
        if row.trigger_client_id is not None
    )
    main_count = max(clients.values(), default=None)
    main = max((name for (name, _), count in clients.items() if count == main_count), default=None)
    return Storm(
        first.sequence,
        burst[-1].sequence,
        started_at,
        ended_at,
        between_ms(started_at, ended_at) if has_ended else None,
        len(burst),
        sum(row.follows is not None for row in burst),
        sum(row.needless is True for row in burst),
        len({name for name, _ in clients}),
        first.trigger_kind,
        first.trigger_member_id,
        first.trigger_client_id,
        first.trigger_host,
        main,
        main_count,
        sorted({row.trigger_kind for row in burst if row.trigger_kind is not None}),
        total([row.stopped_total_ms for row in burst]),
        longest([row.stopped_longest_ms for row in burst]) or 0,
    )
