"""Finds storms: periods with many rebalances, whatever their causes."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kohort.insight.analysis.rows import Rebalance, between_ms, longest, total
from kohort.insight.tables.findings import Storm


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
