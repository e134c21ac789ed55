"""Computes the owners of partitions over time, and the periods without a reader.

Events name the partitions that a member gained and gave up, but not those that it kept. So
ownership is derived per partition from one event to the next: a span lasts from the rebalance that
assigned the partition to the rebalance that revoked it. Within a span, reading stops and starts
with the owner: an eager member stops reading all its partitions at each rebalance that it joins.

Partitions of a topic that always moved together have the same intervals. These are computed once
and stored as one row with all partition numbers: in a group of eight members with 24 partitions, an
eager rebalance makes 16 rows instead of 48.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from kohort.insight.analysis.rows import (
    GONE,
    Member,
    Rebalance,
    between_ms,
    total,
)
from kohort.insight.event_rows import later
from kohort.insight.tables.findings import Interval, Unavailability

_NAME: Final = re.compile(r"(.+)-([0-9]+)")
_NUMBER_MAX: Final = 2**31 - 1

_LOSS: Final = 0
_GAIN: Final = 1
_STOP: Final = 0
_START: Final = 1
"""_STOP is less than _START: within a rebalance, revocation comes before assignment."""

OWNED: Final = "owned"
UNAVAILABLE: Final = "unavailable"


class _Part(NamedTuple):
    """A member's stop and start times in a rebalance; its moved partitions share them."""

    sequence: int
    member_id: str | None
    owner: str | None
    client_id: str | None
    stop_at: int | None
    start_at: int | None
    how: str


_Move: TypeAlias = tuple[int, int, _Part]
"""A member's loss or gain of a partition: sequence number, _LOSS or _GAIN, the member's times."""


class _Transition(NamedTuple):
    """The moment at which reading of a partition stopped or started."""

    sequence: int
    edge: int
    at: int
    how: str
    part: _Part


class _Line(NamedTuple):
    """The state of a partition after all rebalances that `Ownership.add` has processed."""

    gain: _Move | None
    """The move that assigned the partition to its owner; None without an owner."""
    open: _Transition | None
    """The last stop or start, which begins the interval that has not ended."""


_NOTHING: Final = _Line(None, None)


class Ownership:
    """Computes a group's rows of the table `partitions`, if they end at `since` or later.

    Members are added in the order of their rebalances, in one or more portions. Only the state of
    each partition is kept between portions; partitions share a row if they moved together within a
    portion.

    Moves before `since` are processed too, because they determine who owns what at `since`. Owners'
    stops before `since` are skipped: each rebalance may have one for every partition.
    """

    def __init__(self, rebalances: Mapping[int, Rebalance], since: int | None) -> None:
        self._rebalances, self._since = rebalances, since
        self._lines: dict[tuple[str, int], _Line] = {}
        self._taken: int | None = None
        """Sequence number of the last rebalance whose members were added."""

    def add(self, members: Sequence[Member], *, is_last: bool) -> list[Interval]:
        """Add members; return the intervals that have ended, and with `is_last` also those that
        have not.
        """
        stops = _stops(members, self._since)
        rows: list[Interval] = []
        for topic, partitions, line, moves in self._together(members, stops, is_last=is_last):
            known = moves if line.gain is None else (line.gain, *moves)
            chain = [] if line.open is None else [line.open]
            chain += [
                transition
                for transition in _transitions(known, stops)
                if self._taken is None or transition.sequence > self._taken
            ]
            kept = _changes(chain)
            ended = _intervals(kept) if is_last else _intervals(kept, with_open=False)
            for begin, end, ended_by in ended:
                until_at = None if end is None or ended_by == "unknown" else end.at
                if until_at is not None and self._since is not None and until_at < self._since:
                    continue
                end_of = (until_at, end, ended_by)
                rows.append(_interval(topic, partitions, begin, end_of, self._rebalances))
            last = known[-1] if known and known[-1][1] == _GAIN else None
            for partition in partitions:
                self._lines[topic, partition] = _Line(last, kept[-1] if kept else None)
        if members:
            self._taken = members[-1].sequence
        return rows

    def _together(
        self, members: Sequence[Member], stops: Mapping[str, object], *, is_last: bool
    ) -> Iterator[tuple[str, tuple[int, ...], _Line, tuple[_Move, ...]]]:
        """Yield each set of partitions that moved together: topic, numbers, last state, moves."""
        moves: dict[tuple[str, int], list[_Move]] = defaultdict(list)
        for member in members:
            if not member.gained and not member.given_up:
                continue
            part = _part(member)
            for names, move in ((member.given_up, _LOSS), (member.gained, _GAIN)):
                for key in _parsed(names or ()):
                    moves[key].append((part.sequence, move, part))
        for key, line in self._lines.items():
            if is_last or (line.gain is not None and line.gain[2].owner in stops):
                moves.setdefault(key, [])
        sets: dict[tuple[str, _Line, tuple[_Move, ...]], list[int]] = defaultdict(list)
        for (topic, partition), moves_of in moves.items():
            # Events are in order; losses and gains within one event may not be.
            moves_of.sort(key=_place)
            line = self._lines.get((topic, partition), _NOTHING)
            sets[topic, line, tuple(moves_of)].append(partition)
        for (topic, line, same), partitions in sets.items():
            yield topic, tuple(sorted(partitions)), line, same


class Idle:
    """Computes the table `unavailability`: sums of table `partitions` by partition and cause."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int, str], tuple[int, int, int, int, int]] = {}

    def add(self, intervals: Iterable[Interval]) -> None:
        by_cause: dict[tuple[str, tuple[int, ...], str], list[Interval]] = defaultdict(list)
        for row in intervals:
            if row.state == UNAVAILABLE:
                by_cause[row.topic, row.partitions, row.cause or "unknown"].append(row)
        for (topic, partitions, cause), rows in by_cause.items():
            times, ms, longest_ms = len(rows), 0, 0
            for row in rows:
                ms += row.duration_ms or 0
                longest_ms = max(longest_ms, row.duration_ms or 0)
            open_count = sum(row.duration_ms is None for row in rows)
            last_at = max(row.from_at for row in rows)
            for partition in partitions:
                key = topic, partition, cause
                before = self._sums.get(key, (0, 0, 0, 0, last_at))
                self._sums[key] = (
                    before[0] + times,
                    before[1] + ms,
                    max(before[2], longest_ms),
                    before[3] + open_count,
                    max(before[4], last_at),
                )

    def rows(self) -> list[Unavailability]:
        return [
            Unavailability(*key, times, total([ms]), *others)
            for key, (times, ms, *others) in self._sums.items()
        ]


def _place(move: _Move) -> tuple[object, ...]:
    sequence, kind, part = move
    return (sequence, kind, *_ordered(part))


def _ordered(part: _Part) -> tuple[object, ...]:
    return tuple(
        (value is not None, 0 if value is None else value)
        for value in (part.member_id, part.owner, part.client_id, part.stop_at, part.start_at)
    )


def _parsed(names: Iterable[str | None]) -> Iterator[tuple[str, int]]:
    for name in names:
        match = _NAME.fullmatch(name or "")
        if match is not None and len(match[2]) <= len(str(_NUMBER_MAX)) + 20:
            number = int(match[2])
            if number <= _NUMBER_MAX:
                yield match[1], number


def _part(member: Member) -> _Part:
    return _Part(
        member.sequence,
        member.member_id,
        member.owner,
        member.client_id,
        _stop_at(member),
        later(
            member.started_at,
            member.completed_ms if member.mode == "consumer" else member.sync_answered_ms,
        ),
        _how(member),
    )


class _Stop(NamedTuple):
    """When an owner stopped reading in a rebalance, and when it started again."""

    part: _Part
    start_at: int | None


def _stops(
    members: Sequence[Member], since: int | None
) -> dict[str, tuple[list[int], list[_Stop]]]:
    """Return, by owner, the sequence numbers of rebalances in which it stopped, and the stops."""
    stops_by_owner: dict[str, tuple[list[int], list[_Stop]]] = {}
    for member in members:
        if since is not None and (member.started_at is None or member.started_at < since):
            continue
        is_eager = member.mode == "eager" and member.join_received_ms is not None
        if member.owner is None or not (is_eager or member.fate in GONE):
            continue
        part = _part(member)
        goes_on = is_eager and member.fate in {"kept", "new"}
        sequences, stops = stops_by_owner.setdefault(member.owner, ([], []))
        sequences.append(member.sequence)
        stops.append(_Stop(part, part.start_at if goes_on else None))
    return stops_by_owner


def _transitions(
    moves: Sequence[_Move], stops: Mapping[str, tuple[list[int], list[_Stop]]]
) -> list[_Transition]:
    """Return the stops and starts of a set of partitions in order, at most one of each per
    rebalance.
    """
    first: dict[tuple[int, int], _Transition] = {}

    def add(edge: int, at: int | None, part: _Part) -> None:
        if at is None:
            return
        key = part.sequence, edge
        transition = _Transition(part.sequence, edge, at, part.how, part)
        if key not in first or _earlier(transition) < _earlier(first[key]):
            first[key] = transition

    for index, (sequence, move, part) in enumerate(moves):
        if move == _LOSS:
            add(_STOP, part.stop_at, part)
            continue
        add(_START, part.start_at, part)
        until = moves[index + 1][0] if index + 1 < len(moves) else None
        if part.owner is None or part.owner not in stops:
            continue
        sequences, owner_stops = stops[part.owner]
        begin = bisect_right(sequences, sequence)
        end = len(sequences) if until is None else bisect_right(sequences, until)
        for stop in owner_stops[begin:end]:
            add(_STOP, stop.part.stop_at, stop.part)
            if until is None or stop.part.sequence < until:
                add(_START, stop.start_at, stop.part)
    return [first[key] for key in sorted(first)]


def _earlier(transition: _Transition) -> tuple[object, ...]:
    return (transition.at, transition.how, *_ordered(transition.part)[:3])


def _changes(transitions: Sequence[_Transition]) -> list[_Transition]:
    """Return the transitions, but leave out each stop that directly follows another stop."""
    return [
        transition
        for index, transition in enumerate(transitions)
        if index == 0 or transition.edge == _START or transitions[index - 1].edge == _START
    ]


def _intervals(
    kept: Sequence[_Transition], *, with_open: bool = True
) -> Iterator[tuple[_Transition, _Transition | None, str | None]]:
    """Yield the interval between each transition and the next, with the reason for its end."""
    for index, transition in enumerate(kept):
        following = kept[index + 1] if index + 1 < len(kept) else None
        if following is None:
            if with_open:
                yield transition, None, None
        elif transition.edge == _STOP:
            yield transition, following, "assigned"
        else:
            # If a start follows a start, the history lacks the revocation in between.
            yield transition, following, "unknown" if following.edge == _START else following.how


def _interval(
    topic: str,
    partitions: tuple[int, ...],
    begin: _Transition,
    ended: tuple[int | None, _Transition | None, str | None],
    rebalances: Mapping[int, Rebalance],
) -> Interval:
    until_at, end, ended_by = ended
    part = begin.part
    is_stop = begin.edge == _STOP
    cause = rebalances.get(begin.sequence) if is_stop else None
    is_expiry = cause is not None and begin.how == "session_expired"
    return Interval(
        topic,
        partitions,
        begin.sequence,
        UNAVAILABLE if is_stop else OWNED,
        part.member_id,
        part.owner,
        part.client_id,
        begin.at,
        until_at,
        None if until_at is None else between_ms(begin.at, until_at),
        None if until_at is None or end is None else end.sequence,
        ended_by,
        None if cause is None else cause.trigger_kind,
        None if cause is None else cause.trigger_member_id,
        cause.trigger_session_timeout_ms if cause is not None and is_expiry else None,
    )


def _stop_at(member: Member) -> int | None:
    """Return when a member stopped reading in a rebalance: when it left or was removed; else, if
    cooperative, at the assignment that revokes partitions, or in a consumer group, when its
    heartbeat reported the revocation. An eager member stops at its join, unless it left before.
    """
    ms = member.join_received_ms if member.mode == "eager" else None
    other_ms = None
    if member.fate in GONE:
        other_ms = member.fate_ms
    elif member.mode == "cooperative" and member.fate is not None:
        other_ms = member.sync_answered_ms
    elif member.mode == "consumer":
        other_ms = member.revoked_ms
    if ms is None or (other_ms is not None and other_ms < ms):
        ms = other_ms
    return later(member.started_at, 0 if ms is None else ms)


def _how(member: Member) -> str:
    if member.fate is not None and member.fate in GONE:
        return member.fate
    return "stopped" if member.mode == "eager" else "given_up"
