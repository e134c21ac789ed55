"""Finds storms, which are bursts of rebalances, and their causes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kohort.insight.analysis.rows import GONE, Member, Rebalance, between_ms, longest, total

_FEW: Final = 2
"""The minimum number of processes that leave and that join when a new version is deployed."""


class Storm(NamedTuple):
    """A row of the table `storms`, without its group."""

    first_sequence: int
    last_sequence: int
    started_at: int | None
    ended_at: int | None
    duration_ms: int | None
    rebalance_count: int
    follow_up_count: int
    needless_count: int
    member_count: int
    left_count: int
    new_count: int
    started_by: str
    first_cause: str | None
    first_member_id: str | None
    first_client_id: str | None
    first_host: str | None
    main_client_id: str | None
    main_client_count: int | None
    causes: list[str]
    stopped_total_ms: int | None
    stopped_longest_ms: int


def storms(
    rebalances: Sequence[Rebalance],
    moved: "Mapping[int, Sequence[Moved]]",
    *,
    quiet_ms: int,
    size: int,
) -> list[Storm]:
    """Return the runs of at least `size` rebalances with gaps of at most `quiet_ms`."""
    return [_storm(burst, moved) for burst in _bursts(rebalances, quiet_ms) if len(burst) >= size]


def moved_by_sequence(members: Mapping[int, Sequence[Member]]) -> "dict[int, list[Moved]]":
    """Return the members that left and joined, by the sequence of the rebalance."""
    moved_by_sequence = {}
    for sequence, rows in members.items():
        moved = [
            Moved(_name(row), row.fate in _LEFT_FATES, row.fate in _JOINED_FATES)
            for row in rows
            if row.fate in _LEFT_FATES or row.fate in _JOINED_FATES
        ]
        if moved:
            moved_by_sequence[sequence] = moved
    return moved_by_sequence


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


class Moved(NamedTuple):
    """A member that left or joined in a rebalance, or both."""

    process: str
    """The instance id of the process, or its client id and host."""
    has_left: bool
    has_joined: bool


_JOINED_FATES: Final = frozenset({"new", "replaced"})
_LEFT_FATES: Final = GONE | {"replaced"}


class _Turnover(NamedTuple):
    """Numbers of members and processes that left and joined during a storm."""

    left: int
    new: int
    processes_left: int
    processes_new: int


def _storm(burst: Sequence[Rebalance], moved: Mapping[int, Sequence[Moved]]) -> Storm:
    first = burst[0]
    started_at = min((row.started_at for row in burst if row.started_at is not None), default=None)
    has_ended = all(row.ended_at is not None for row in burst)
    ended_at = longest([row.ended_at for row in burst]) if has_ended else None
    turnover = _turnover([row for rebalance in burst for row in moved.get(rebalance.sequence, ())])
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
        turnover.left,
        turnover.new,
        _started_by(burst, turnover, main_count),
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


def _turnover(moved: Sequence[Moved]) -> _Turnover:
    left = [row.process for row in moved if row.has_left]
    joined = [row.process for row in moved if row.has_joined]
    return _Turnover(len(left), len(joined), len(set(left)), len(set(joined)))


def _name(member: Member) -> str:
    if member.instance_id is not None:
        return member.instance_id
    return "@".join(part for part in (member.client_id, member.host) if part is not None)


def _started_by(burst: Sequence[Rebalance], turnover: _Turnover, main_count: int | None) -> str:
    stated = sum(
        row.trigger_reason == "RESTART" and row.trigger_reason_source == "tag" for row in burst
    )
    is_exchange = turnover.processes_left >= _FEW and turnover.processes_new >= _FEW
    if is_exchange or stated >= _FEW:
        return "deploy"
    if main_count is not None and main_count * 2 >= len(burst):
        return "member"
    if turnover.processes_new and not turnover.processes_left:
        return "scale_out"
    if turnover.processes_left and not turnover.processes_new:
        return "scale_in"
    return "several"
