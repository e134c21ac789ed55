"""The owners of partitions over time, and for how long each was not read.

Events name the partitions that a member gained and gave up, not those that it kept. So what a
member holds is put together from one event to the next, per partition: a span of rebalances, from
the one that gave it to the one that took it away. Within its span a partition stops and starts
with its owner: an eager member stops at each rebalance that it joins, for all that it holds.

Partitions of a topic that always moved together have the same times throughout. They are worked out
once, and are one row with all their numbers: in a group of eight members with 24 partitions, an
eager rebalance makes 16 rows and not 48.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from kohort.pipeline.analysis.rows import (
    GONE,
    Member,
    Rebalance,
    between_ms,
    longest,
    total,
)
from kohort.pipeline.events.rows import later

_NAME: Final = re.compile(r"(.+)-([0-9]+)")
_NUMBER_MAX: Final = 2**31 - 1

_LOSS: Final = 0
_GAIN: Final = 1
_STOP: Final = 0
_START: Final = 1
"""In this order within one rebalance: a partition is taken before it is given."""

OWNED: Final = "owned"
UNAVAILABLE: Final = "unavailable"


class Interval(NamedTuple):
    """A row of the table `partitions`, without its group."""

    topic: str
    partitions: tuple[int, ...]
    sequence: int
    state: str
    member_id: str | None
    owner: str | None
    client_id: str | None
    from_at: int
    until_at: int | None
    duration_ms: int | None
    until_sequence: int | None
    ended_by: str | None
    cause: str | None
    cause_member_id: str | None
    unnoticed_ms_max: int | None


class Unavailability(NamedTuple):
    """A row of the table `unavailability`, without its group."""

    topic: str
    partition: int
    cause: str
    times: int
    total_ms: int | None
    longest_ms: int
    open_count: int
    last_at: int


class _Part(NamedTuple):
    """What a member did in a rebalance, for each partition that it gained or gave up."""

    sequence: int
    member_id: str | None
    owner: str | None
    client_id: str | None
    stop_at: int | None
    start_at: int | None
    how: str


_Move: TypeAlias = tuple[int, int, _Part]
"""Sequence, _LOSS or _GAIN, and whose."""


class _Transition(NamedTuple):
    """A stop or a start of a partition."""

    sequence: int
    turn: int
    at: int
    how: str
    part: _Part


def intervals(
    members: Sequence[Member], rebalances: Mapping[int, Rebalance], since: int | None
) -> list[Interval]:
    """The rows of `partitions` that end at `since` or later, of all members of a group.

    Owners' stops are looked for in rebalances since then: there are as many as partitions times
    rebalances, while spans, found over the whole of the history, are as many as moves.
    """
    stops = _stops(members, since)
    found = []
    for topic, partitions, moves in _together(members):
        for one in _intervals(_transitions(moves, stops)):
            begin, end, ended_by = one
            until_at = None if end is None or ended_by == "unknown" else end.at
            if until_at is not None and since is not None and until_at < since:
                continue
            found.append(_interval(topic, partitions, begin, (until_at, end, ended_by), rebalances))
    return found


def unavailability(found: Iterable[Interval]) -> list[Unavailability]:
    """The rows of `unavailability`, one for each partition."""
    by_cause: dict[tuple[str, tuple[int, ...], str], list[Interval]] = defaultdict(list)
    for one in found:
        if one.state == UNAVAILABLE:
            by_cause[one.topic, one.partitions, one.cause or "unknown"].append(one)
    return [
        Unavailability(
            topic,
            partition,
            cause,
            len(rows),
            total([row.duration_ms for row in rows]),
            longest([row.duration_ms for row in rows]) or 0,
            sum(row.duration_ms is None for row in rows),
            max(row.from_at for row in rows),
        )
        for (topic, partitions, cause), rows in by_cause.items()
        for partition in partitions
    ]


def _together(
    members: Sequence[Member],
) -> Iterator[tuple[str, tuple[int, ...], tuple[_Move, ...]]]:
    """Each set of partitions that moved together, and how."""
    moves: dict[tuple[str, int], list[_Move]] = defaultdict(list)
    for member in members:
        if not member.gained and not member.given_up:
            continue
        part = _part(member)
        for names, move in ((member.given_up, _LOSS), (member.gained, _GAIN)):
            for key in _parsed(names or ()):
                moves[key].append((part.sequence, move, part))
    sets: dict[tuple[str, tuple[_Move, ...]], list[int]] = defaultdict(list)
    for (topic, partition), of in moves.items():
        # Events come in order; a loss and a gain in one event may not.
        of.sort(key=_place)
        sets[topic, tuple(of)].append(partition)
    for (topic, same), partitions in sets.items():
        yield topic, tuple(sorted(partitions)), same


def _place(move: _Move) -> tuple[object, ...]:
    sequence, kind, part = move
    return (sequence, kind, *_ordered(part))


def _ordered(part: _Part) -> tuple[object, ...]:
    """For a sort in which what is missing comes first."""
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
        later(member.started_at, member.sync_answered_ms),
        _how(member),
    )


class _Stop(NamedTuple):
    """An owner's stop in a rebalance, and its start after it."""

    part: _Part
    start_at: int | None


def _stops(
    members: Sequence[Member], since: int | None
) -> dict[str, tuple[list[int], list[_Stop]]]:
    """By owner: the rebalances in which it stops with what it holds, in order, and the stops."""
    found: dict[str, tuple[list[int], list[_Stop]]] = {}
    for member in members:
        if since is not None and (member.started_at is None or member.started_at < since):
            continue
        is_eager = member.mode == "eager" and member.join_received_ms is not None
        if member.owner is None or not (is_eager or member.fate in GONE):
            continue
        part = _part(member)
        goes_on = is_eager and member.fate in {"kept", "new"}
        sequences, stops = found.setdefault(member.owner, ([], []))
        sequences.append(member.sequence)
        stops.append(_Stop(part, part.start_at if goes_on else None))
    return found


def _transitions(
    moves: Sequence[_Move], stops: Mapping[str, tuple[list[int], list[_Stop]]]
) -> list[_Transition]:
    """Stops and starts of a set, in order, one of each at most per rebalance."""
    first: dict[tuple[int, int], _Transition] = {}

    def add(turn: int, at: int | None, part: _Part) -> None:
        if at is None:
            return
        key = part.sequence, turn
        found = _Transition(part.sequence, turn, at, part.how, part)
        if key not in first or _earlier(found) < _earlier(first[key]):
            first[key] = found

    for index, (sequence, move, part) in enumerate(moves):
        if move == _LOSS:
            add(_STOP, part.stop_at, part)
            continue
        add(_START, part.start_at, part)
        until = moves[index + 1][0] if index + 1 < len(moves) else None
        if part.owner is None or part.owner not in stops:
            continue
        sequences, of = stops[part.owner]
        begin = bisect_right(sequences, sequence)
        end = len(sequences) if until is None else bisect_right(sequences, until)
        for stop in of[begin:end]:
            add(_STOP, stop.part.stop_at, stop.part)
            if until is None or stop.part.sequence < until:
                add(_START, stop.start_at, stop.part)
    return [first[key] for key in sorted(first)]


def _earlier(one: _Transition) -> tuple[object, ...]:
    return (one.at, one.how, *_ordered(one.part)[:3])


def _intervals(
    transitions: Sequence[_Transition],
) -> Iterator[tuple[_Transition, _Transition | None, str | None]]:
    """From each transition to the next, and what ended it; a stop behind a stop changes nothing."""
    kept = [
        one
        for index, one in enumerate(transitions)
        if index == 0 or one.turn == _START or transitions[index - 1].turn == _START
    ]
    for index, one in enumerate(kept):
        then = kept[index + 1] if index + 1 < len(kept) else None
        if then is None:
            yield one, None, None
        elif one.turn == _STOP:
            yield one, then, "assigned"
        else:
            # A start behind a start: what took the partition away in between is not known.
            yield one, then, "unknown" if then.turn == _START else then.how


def _interval(
    topic: str,
    partitions: tuple[int, ...],
    begin: _Transition,
    ended: tuple[int | None, _Transition | None, str | None],
    rebalances: Mapping[int, Rebalance],
) -> Interval:
    until_at, end, ended_by = ended
    part = begin.part
    is_stop = begin.turn == _STOP
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
    """When a member stopped in a rebalance: at its join if eager, at the answer that took what it
    has to give up if cooperative, and when it was removed at the latest.
    """
    is_gone = member.fate in GONE
    moments = [
        member.join_received_ms if member.mode == "eager" else None,
        member.fate_ms if is_gone else None,
        member.sync_answered_ms
        if member.mode == "cooperative" and member.fate is not None and not is_gone
        else None,
    ]
    ms = min((one for one in moments if one is not None), default=0)
    return later(member.started_at, ms)


def _how(member: Member) -> str:
    if member.fate is not None and member.fate in GONE:
        return member.fate
    return "stopped" if member.mode == "eager" else "given_up"
