"""Bursts of rebalances, and who began them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kohort.insight.analysis.rows import GONE, Member, Rebalance, between_ms, longest, total

_FEW: Final = 2
"""Processes, at least, that go and that come when a new version is rolled out."""


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
    moved: Mapping[int, Sequence[Moved]],
    *,
    quiet_ms: int,
    size: int,
) -> list[Storm]:
    """Runs of `size` rebalances or more without `quiet_ms` between two."""
    return [_storm(burst, moved) for burst in _bursts(rebalances, quiet_ms) if len(burst) >= size]


def moved_in(members: Mapping[int, Sequence[Member]]) -> dict[int, list[Moved]]:
    """The members that went, and those that came, by the sequence of the rebalance."""
    found = {}
    for sequence, rows in members.items():
        moved = [
            Moved(_name(row), row.fate in _WENT, row.fate in _CAME)
            for row in rows
            if row.fate in _WENT or row.fate in _CAME
        ]
        if moved:
            found[sequence] = moved
    return found


def _bursts(rebalances: Sequence[Rebalance], quiet_ms: int) -> Iterator[list[Rebalance]]:
    burst: list[Rebalance] = []
    last_end: int | None = None
    for row in rebalances:
        goes_on = between_ms(last_end, row.started_at) <= quiet_ms or row.follows is not None
        if burst and not goes_on:
            yield burst
            burst = []
        burst.append(row)
        last_end = longest([last_end, row.started_at if row.ended_at is None else row.ended_at])
    if burst:
        yield burst


class Moved(NamedTuple):
    """A member that went in a rebalance, or came, or both."""

    process: str
    """The instance id of the process, or its client id and host."""
    has_gone: bool
    has_come: bool


_CAME: Final = frozenset({"new", "replaced"})
_WENT: Final = GONE | {"replaced"}


class _Comings(NamedTuple):
    """Members that went and that came during a storm, and the processes behind them."""

    left: int
    new: int
    processes_left: int
    processes_new: int


def _storm(burst: Sequence[Rebalance], moved: Mapping[int, Sequence[Moved]]) -> Storm:
    first = burst[0]
    started_at = min((row.started_at for row in burst if row.started_at is not None), default=None)
    has_ended = all(row.ended_at is not None for row in burst)
    ended_at = longest([row.ended_at for row in burst]) if has_ended else None
    comings = _comings([row for one in burst for row in moved.get(one.sequence, ())])
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
        comings.left,
        comings.new,
        _started_by(burst, comings, main_count),
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


def _comings(moved: Sequence[Moved]) -> _Comings:
    went = [row.process for row in moved if row.has_gone]
    came = [row.process for row in moved if row.has_come]
    return _Comings(len(went), len(came), len(set(went)), len(set(came)))


def _name(member: Member) -> str:
    if member.instance_id is not None:
        return member.instance_id
    return "@".join(part for part in (member.client_id, member.host) if part is not None)


def _started_by(burst: Sequence[Rebalance], comings: _Comings, main_count: int | None) -> str:
    stated = sum(
        row.trigger_reason == "RESTART" and row.trigger_reason_source == "tag" for row in burst
    )
    is_exchange = comings.processes_left >= _FEW and comings.processes_new >= _FEW
    if is_exchange or stated >= _FEW:
        return "deploy"
    if main_count is not None and main_count * 2 >= len(burst):
        return "member"
    if comings.processes_new and not comings.processes_left:
        return "scale_out"
    if comings.processes_left and not comings.processes_new:
        return "scale_in"
    return "several"
