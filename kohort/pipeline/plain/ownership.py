"""The owners of a group's partitions over time, for how long each was not read, and which moved too
often: the rules of `transformations.ownership` and `transformations.flapping`, for one group.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from kohort.pipeline.plain.history import GONE, History, Row

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""

FLAPPING_MOVES: Final = 3
"""A partition flaps that moves so often"""
FLAPPING_WINDOW_MS: Final = 3_600_000
"""in so long."""
_LOSS: Final = 0
_GAIN: Final = 1
_STOP: Final = 0
_START: Final = 1
"""In this order within one rebalance: a partition is taken before it is given."""
_NAME: Final = re.compile(r"(.+)-(\d{1,9})", re.DOTALL)


def partitions(history: History) -> dict[Partition, list[Row]]:
    """The times of each partition with an owner and without one, in their order: `state`, `owner`,
    `client_id`, `from_at_ms`, `until_at_ms` and `ended_by` as in the table `partitions`.
    """
    stopping: dict[str, list[Row]] = defaultdict(list)
    for row in history.members:
        is_eager = row["mode"] == "eager" and row["join_received_ms"] is not None
        if is_eager or row["fate"] in GONE:
            stopping[row["owner"]].append(row)
    causes = history.rebalance_of()
    return {
        partition: list(_intervals(_transitions(moves, stopping), causes))
        for partition, moves in sorted(_named(history).items())
    }


def unavailability(owned: dict[Partition, list[Row]]) -> list[Row]:
    """The rows of `unavailability`, the longest without a reader first."""
    rows = []
    for (topic, partition), times in owned.items():
        by_cause: dict[str, list[Row]] = defaultdict(list)
        for one in times:
            if one["state"] == "unavailable":
                by_cause[one["cause"] or "unknown"].append(one)
        for cause, stops in by_cause.items():
            ended = [one["duration_ms"] for one in stops if one["duration_ms"] is not None]
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "cause": cause,
                    "times": len(stops),
                    "total_ms": sum(ended),
                    "longest_ms": max(ended, default=0),
                    "open_count": len(stops) - len(ended),
                    "last_at_ms": max(one["from_at_ms"] for one in stops),
                }
            )
    return sorted(
        rows, key=lambda row: (-row["total_ms"], row["topic"], row["partition"], row["cause"])
    )


def flapping(
    owned: dict[Partition, list[Row]],
    *,
    moves: int = FLAPPING_MOVES,
    window_ms: int = FLAPPING_WINDOW_MS,
) -> list[Row]:
    """The rows of `flapping`: partitions that changed hands so often in so long."""
    rows = []
    for (topic, partition), times in owned.items():
        stints = _stints(times)
        changes = [one["from_at_ms"] for one in stints[1:]]
        counts = [
            sum(at_ms - window_ms <= other <= at_ms for other in changes) for at_ms in changes
        ]
        if max(counts, default=0) < moves:
            continue
        owners = [one["owner"] for one in stints]
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "moves": len(changes),
                "moves_in_window": max(counts),
                "window_ended_at_ms": max(zip(counts, changes, strict=True))[1],
                "owner_count": len(set(owners)),
                "returns": sum(one == two for one, two in zip(owners, owners[2:], strict=False)),
                "shortest_ms": min(
                    max(after["from_at_ms"] - before["from_at_ms"], 0)
                    for before, after in pairwise(stints)
                ),
            }
        )
    return sorted(rows, key=lambda row: (-row["moves"], row["topic"], row["partition"]))


def _stints(times: Sequence[Row]) -> list[Row]:
    """Times with one owner, however often that one stopped in between."""
    stints: list[Row] = []
    for one in times:
        if one["state"] == "owned" and (not stints or stints[-1]["owner"] != one["owner"]):
            stints.append(one)
    return stints


def _named(history: History) -> dict[Partition, list[Row]]:
    """Each gain and loss that an event names, in their order."""
    named: dict[Partition, list[Row]] = defaultdict(list)
    for row in history.members:
        for move, names in ((_LOSS, row["given_up"]), (_GAIN, row["gained"])):
            for name in names:
                if (match := _NAME.fullmatch(str(name))) is not None:
                    named[match[1], int(match[2])].append(_as_move(row, move))
    for moves in named.values():
        moves.sort(key=lambda one: (one["sequence"], one["move"]))
    return named


def _as_move(row: Row, move: int) -> Row:
    return {
        "sequence": row["sequence"],
        "move": move,
        "owner": row["owner"],
        "client_id": row["client_id"],
        "member_id": row["member_id"],
        "stop_at_ms": _stop_at(row),
        "start_at_ms": _start_at(row),
        "how": _how(row),
    }


def _transitions(moves: list[Row], stopping: dict[str, list[Row]]) -> list[Row]:
    """Stops and starts of one partition, one of each at most per rebalance, in their order."""
    found = [
        _turn(one, one["move"], one["start_at_ms" if one["move"] == _GAIN else "stop_at_ms"])
        for one in moves
    ]
    for place, one in enumerate(moves):
        if one["move"] == _GAIN:
            until = moves[place + 1]["sequence"] if place + 1 < len(moves) else None
            found += _stops(one, until, stopping.get(one["owner"], []))
    chosen: dict[tuple[int, int], Row] = {}
    for one in found:
        if one["at_ms"] is not None:
            key = (one["sequence"], one["turn"])
            if key not in chosen or _rank(one) < _rank(chosen[key]):
                chosen[key] = one
    return [chosen[key] for key in sorted(chosen)]


def _stops(span: Row, until: int | None, stopping: list[Row]) -> Iterator[Row]:
    """Where the owner of a span stops, and starts again with what it holds."""
    for row in stopping:
        sequence = row["sequence"]
        if sequence <= span["sequence"] or (until is not None and sequence > until):
            continue
        again = _as_move(row, _START)
        yield _turn(again, _STOP, again["stop_at_ms"])
        is_eager = row["mode"] == "eager" and row["join_received_ms"] is not None
        if is_eager and row["fate"] in {"kept", "new"} and (until is None or sequence < until):
            yield _turn(again, _START, again["start_at_ms"])


def _turn(move: Row, turn: int, at_ms: int | None) -> Row:
    names = ("sequence", "owner", "client_id", "member_id", "how")
    return {**{name: move[name] for name in names}, "turn": turn, "at_ms": at_ms}


def _rank(one: Row) -> tuple[int | str, ...]:
    names = ("how", "member_id", "owner", "client_id")
    return (one["at_ms"], *(one[name] or "" for name in names))


def _intervals(transitions: list[Row], causes: dict[int, Row]) -> Iterator[Row]:
    """From each transition to the next; a stop behind a stop changes nothing."""
    kept = [
        one
        for place, one in enumerate(transitions)
        if not (place and one["turn"] == _STOP == transitions[place - 1]["turn"])
    ]
    for place, one in enumerate(kept):
        following = kept[place + 1] if place + 1 < len(kept) else None
        is_owned = one["turn"] == _START
        # A start behind a start: what took the partition away in between is not known.
        is_lost = is_owned and following is not None and following["turn"] == _START
        until_ms = None if following is None or is_lost else following["at_ms"]
        cause = causes.get(one["sequence"], {})
        yield {
            "sequence": one["sequence"],
            "state": "owned" if is_owned else "unavailable",
            "owner": one["owner"],
            "client_id": one["client_id"],
            "from_at_ms": one["at_ms"],
            "until_at_ms": until_ms,
            "duration_ms": None if until_ms is None else max(until_ms - one["at_ms"], 0),
            "ended_by": _ended_by(following, is_owned=is_owned, is_lost=is_lost),
            "cause": None if is_owned else cause.get("trigger_kind"),
        }


def _ended_by(following: Row | None, *, is_owned: bool, is_lost: bool) -> str | None:
    if following is None:
        return None
    if is_lost:
        return "unknown"
    return str(following["how"]) if is_owned else "assigned"


def _stop_at(row: Row) -> int:
    """When a member stopped in a rebalance: at its join if eager, at the answer that took what it
    has to give up if cooperative, and when it was removed at the latest.
    """
    is_gone = row["fate"] in GONE
    times = [
        row["join_received_ms"] if row["mode"] == "eager" else None,
        row["fate_ms"] if is_gone else None,
        row["sync_answered_ms"] if row["mode"] == "cooperative" and not is_gone else None,
    ]
    known = [ms for ms in times if ms is not None]
    return int(row["started_at_ms"] + min(known, default=0))


def _start_at(row: Row) -> int | None:
    synced_ms = row["sync_answered_ms"]
    return None if synced_ms is None else int(row["started_at_ms"] + synced_ms)


def _how(row: Row) -> str:
    if row["fate"] in GONE:
        return str(row["fate"])
    return "stopped" if row["mode"] == "eager" else "given_up"
