"""Draws a rebalance for the terminal: a line for each member, with its phases from left to right.

No I/O: takes a history record in its JSON form, and returns lines of styled text. The members that
caused the rebalance or were waited for come first, then those that were stopped longest; members
beyond the limit are only counted. Histories of `kohort watch` and of brokers' logs lack the times
at which members of a classic group joined, so all bars are hatched until the join phase ends.
Departures that are not certain have a mark of their own.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Self, TypeAlias

from kohort.formats.text import counted, duration, shown
from kohort.groups.history.wording import short_id

Json: TypeAlias = Mapping[str, Any]

WIDTH_MIN: Final = 60
NAME_CHARS_MAX: Final = 36
BAR_CHARS_MIN: Final = 20


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a line; `style` is the name of a rich style, or empty."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, text: str, style: str = "") -> Self:
        return cls((Span(text, style),))

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans).rstrip()


@dataclass(frozen=True, slots=True)
class Symbols:
    """The characters of a bar's phases. They differ, so that bars are readable without colours."""

    absent: str = " "
    works: str = "─"
    told: str = "░"
    joined: str = "▒"
    assigned: str = "▓"
    gone: str = "X"
    joins: str = "╱"  # noqa: RUF001 - hatching.
    perhaps_gone: str = "?"


ASCII: Final = Symbols(works="-", told=".", joined="=", assigned="#", joins="/")

_STYLES: Final = {
    "absent": "",
    "works": "green",
    "told": "yellow",
    "joined": "red",
    "assigned": "magenta",
    "gone": "bold red",
    "joins": "yellow",
    "perhaps_gone": "red",
}

_LEGEND: Final = {
    "works": "works",
    "told": "gives up partitions",
    "joined": "waits for the others",
    "assigned": "waits for its assignment",
    "gone": "gone",
}

_LEGEND_OF_CONSUMERS: Final = _LEGEND | {
    "joined": "waits for partitions of others",
    "assigned": "has sent no heartbeat since",
}

_PERHAPS_GONE: Final = {"perhaps_gone": "gone, when and how is not certain"}

_LEGEND_WITHOUT_JOINS: Final = {
    "works": "works",
    "joins": "joins or still works",
    "assigned": "waits for its assignment",
    "gone": "gone",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """An activity of a member, in milliseconds since the start of the rebalance."""

    name: str
    start_ms: int
    end_ms: int


def draw(
    record: Json,
    *,
    now_ms: int,
    width: int = 100,
    members: int = 20,
    symbols: Symbols | None = None,
) -> list[Line]:
    """Return the lines of a rebalance, each at most `width` characters long.

    Args:
        record: a record of kind "rebalance" from GET /groups/{group}/rebalances.
        now_ms: wall time of the broker, the end of an ongoing rebalance.
        members: maximum number of members to draw.
    """
    symbols = symbols or Symbols()
    width = max(width, WIDTH_MIN)
    listed = _slowest_first(record)
    drawn = listed[:members]
    end_ms = _end_ms(record, drawn, now_ms)
    names = [_name(member, record) for member in drawn]
    notes = [_note(member, record) for member in drawn]
    free = width - max(map(len, notes), default=0) - 4
    longest = max(map(len, names), default=0)
    name_width = min(longest, NAME_CHARS_MAX, free - BAR_CHARS_MIN)
    bar_width = free - name_width
    lines = [*_scale(record, end_ms, name_width, bar_width)]
    for member, name, note in zip(drawn, names, notes, strict=True):
        bar = _bar(_phases(member, record, end_ms), end_ms, bar_width, symbols)
        label = Span(f"{_cut(name, name_width):<{name_width}}  ", _name_style(member))
        lines.append(Line((label, *bar, Span(f"  {note}"))))
    lines += _rest(record, len(drawn))
    lines.append(_legend(symbols, record))
    return lines


def _is_of_consumers(record: Json) -> bool:
    return bool(record.get("group_type") == "consumer")


def _has_joins(record: Json) -> bool:
    """Whether the record has the times at which members joined."""
    is_over = record["outcome"] == "stable"
    return not is_over or any(
        member["join_received_ms"] is not None for member in record["members"]
    )


def _join_phase_ms(record: Json) -> int | None:
    """Return the duration of the join phase; if it is unknown because `kohort watch` did not see
    the rebalance begin, the time from the recorded start to the latest possible start.
    """
    join_phase_ms: int | None = record["timeline"]["join_phase_ms"]
    between = record.get("started_between_ms")
    if join_phase_ms is None and between:
        return max(int(between[1]) - int(record["started_at_ms"]), 0)
    return join_phase_ms


def _slowest_first(record: Json) -> list[Json]:
    """Sort members: first those that caused the rebalance or were waited for, then the rest. In
    both parts, the longest stopped come first; in a consumer group, the members that do not own
    their whole target assignment yet, then those that were last to own it.
    """
    of_consumers = _is_of_consumers(record)
    waited_for = record["waited_for"] or {}
    named = {record["trigger"]["member_id"], *waited_for.get("member_ids", ())}

    def weight(member: Json) -> tuple[bool, float]:
        is_named = member["member_id"] in named
        if not of_consumers:
            return is_named, member["stopped_ms"] or 0
        completed_ms = member["completed_ms"]
        return is_named, math.inf if completed_ms is None else completed_ms

    return sorted(record["members"], key=weight, reverse=True)


def _end_ms(record: Json, members: Sequence[Json], now_ms: int) -> int:
    """Right end of the drawing: the latest known time; now if the rebalance is running."""
    times = [record["timeline"]["finished_ms"], _join_phase_ms(record), 1]
    if record["outcome"] == "running":
        times.append(now_ms - record["started_at_ms"])
    for member in members:
        times += [member["sync_answered_ms"], member["join_answered_ms"], member["fate_ms"]]
        times.append(member.get("completed_ms"))
    known: list[int] = [time for time in times if time is not None]
    return max(known)


def _phases(member: Json, record: Json, end_ms: int) -> Iterator[Phase]:
    """A member's phases in order; phases of unknown start are left out."""
    gone_ms = member["fate_ms"]
    last_ms = end_ms if gone_ms is None else min(gone_ms, end_ms)
    of_consumers = _is_of_consumers(record)
    if of_consumers:
        times = _consumer_times(member, record)
    elif _has_joins(record):
        times = _classic_times(member)
    else:
        times = _times_without_joins(member, record)
    starts = [("absent" if member["fate"] == "new" else "works", 0)]
    starts += [(name, max(at_ms, 0)) for name, at_ms in times if at_ms is not None]
    ends = [start_ms for _, start_ms in starts[1:]] + [last_ms]
    for (name, start_ms), phase_end_ms in zip(starts, ends, strict=True):
        is_shown = phase_end_ms > start_ms or (name == "assigned" and not of_consumers)
        if start_ms <= last_ms and is_shown:
            yield Phase(name, start_ms, min(phase_end_ms, last_ms))
    if gone_ms is not None:
        name = "perhaps_gone" if _is_perhaps_gone(member) else "gone"
        yield Phase(name, last_ms, last_ms)


def _is_perhaps_gone(member: Json) -> bool:
    """Whether it is not certain how and when the member left."""
    return bool(member.get("certainty", "certain") != "certain")


def _classic_times(member: Json) -> Iterator[tuple[str, int | None]]:
    yield "told", member["told_ms"]
    yield "joined", member["join_received_ms"]
    yield "assigned", member["join_answered_ms"]
    yield "works", member["sync_answered_ms"]


def _times_without_joins(member: Json, record: Json) -> Iterator[tuple[str, int | None]]:
    """Yield the times of a member's phases for a record that has only the end of the join phase and
    the time at which the assignment was stored.
    """
    yield "joins", 0
    if member["fate_ms"] is None:
        yield "assigned", _join_phase_ms(record)
        yield "works", record["timeline"]["durable_ms"]


def _consumer_times(member: Json, record: Json) -> Iterator[tuple[str, int | None]]:
    told_ms, durable_ms = member["told_ms"], record["timeline"]["durable_ms"]
    if told_ms is None or (durable_ms is not None and durable_ms <= told_ms):
        yield "assigned", durable_ms
    yield "told", told_ms
    yield "joined", member["reached_ms"]
    yield "works", member["completed_ms"]


def _bar(phases: Iterator[Phase], end_ms: int, width: int, symbols: Symbols) -> Iterator[Span]:
    """Yield the parts of a bar of `width` characters. Each phase gets at least one character if
    there are enough.
    """
    cells = ["absent"] * width
    first = -1
    for phase in phases:
        first = min(max(phase.start_ms * width // end_ms, first + 1), width - 1)
        last = min(max(-(-phase.end_ms * width // end_ms), first + 1), width)
        cells[first:last] = [phase.name] * (last - first)
    for name, run in groupby(cells):
        yield Span(getattr(symbols, name) * len(list(run)), _STYLES[name])


def _name(member: Json, record: Json) -> str:
    name = shown(member["instance_id"] or short_id(member["member_id"]))
    if _is_of_consumers(record) and member.get("client_id") and member["instance_id"] is None:
        # Members of consumer groups choose random ids: show the client id as well.
        name = f"{shown(member['client_id'])} {name}"
    return f"{name} *" if member["member_id"] == record["leader"] else name


def _name_style(member: Json) -> str:
    return "bold red" if member["fate_ms"] is not None else ""


def _cut(text: str, width: int) -> str:
    """Shorten from the middle: the end of a member id is its unique part."""
    if len(text) <= width:
        return text
    head = width // 2 - 1
    return f"{text[:head]}..{text[len(text) - (width - head - 2) :]}"


def _note(member: Json, record: Json) -> str:
    fate = member["fate"]
    if fate not in {"kept", "new"}:
        certainty = member.get("certainty", "certain")
        mark = "" if certainty == "certain" else f" ({certainty})"
        return f"{str(fate).replace('_', ' ')}{mark}"
    if member["mode"] == "consumer":
        new = "new, " if fate == "new" else ""
        completed_ms = member["completed_ms"]
        if completed_ms is None:
            return f"{new}not complete yet"
        return f"{new}complete after {duration(completed_ms)}"
    stopped_ms = member["stopped_ms"]
    if stopped_ms is None:
        unknown = "new" if fate == "new" else ""
        return "did not join" if _has_joins(record) else unknown
    if member["mode"] == "cooperative":
        # A cooperative member keeps reading the partitions that it does not lose (KIP-429).
        note = f"gained partitions after {duration(stopped_ms)}" if stopped_ms else "kept consuming"
    else:
        verb = "new, waited" if fate == "new" else "stopped"
        note = f"{verb} {duration(stopped_ms)}"
    return f"{note} so far" if member["stopped_open"] else note


def _scale(record: Json, end_ms: int, name_width: int, bar_width: int) -> Iterator[Line]:
    """Time scale above the bars; marks the end of the join phase or the broker's assignment."""
    indent = " " * (name_width + 2)
    end = duration(end_ms)
    yield Line.of(f"{indent}0{end:>{bar_width - 1}}", "dim")
    of_consumers = _is_of_consumers(record)
    mark_ms = record["timeline"]["durable_ms"] if of_consumers else _join_phase_ms(record)
    if mark_ms is None:
        return
    place = min(mark_ms * bar_width // end_ms, bar_width - 1)
    what = "assigned" if of_consumers else "joins ended"
    at = "about " if record.get("started_between_ms") else ""
    text = f"{what} at {at}{duration(mark_ms)}"
    if place + 2 + len(text) <= bar_width:
        mark = f"{' ' * place}| {text}"
    elif len(text) + 1 <= place:
        mark = f"{' ' * (place - len(text) - 1)}{text} |"
    else:
        mark = " " * place + "|"
    yield Line.of(f"{indent}{mark}", "dim")


def _rest(record: Json, drawn: int) -> Iterator[Line]:
    left = len(record["members"]) - drawn + record["members_dropped"]
    if (left > 0 and _is_of_consumers(record)) or (left > 0 and record["stopped"] is None):
        yield Line.of(f"and {left:,} more")
    elif left > 0:
        stopped = record["stopped"]
        total = counted(stopped["member_count"], "member")
        yield Line.of(
            f"and {left:,} more; {total} stopped, for {duration(stopped['longest_ms'])} at the "
            f"longest and {duration(stopped['total_ms'])} altogether"
        )


def _legend(symbols: Symbols, record: Json) -> Line:
    spans: list[Span] = []
    of_consumers = _is_of_consumers(record)
    if of_consumers:
        legend = _LEGEND_OF_CONSUMERS
    else:
        legend = _LEGEND if _has_joins(record) else _LEGEND_WITHOUT_JOINS
    if any(_is_perhaps_gone(member) for member in record["members"]):
        legend = legend | _PERHAPS_GONE
    for name, meaning in legend.items():
        spans += [Span(getattr(symbols, name), _STYLES[name]), Span(f" {meaning}  ", "dim")]
    return Line((*spans, *(() if of_consumers else (Span("* leads", "dim"),))))
