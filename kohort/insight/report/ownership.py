"""Draws the owners of partitions over time."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kohort.formats.text import counted
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.markup import Markup, element
from kohort.insight.report.scales import Times
from kohort.insight.report.svg import (
    LETTER,
    LINE,
    WIDE,
    Drawing,
    box,
    figure,
    line,
    svg_text,
    time_axis,
)
from kohort.insight.report.text import NOTHING, cause, clock, duration, moment, name

COLOURS: Final = 8
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ROW: Final = 18
_PIXELS_LEAST: Final = 0.4
"""Periods narrower than this are not drawn, because they would be invisible."""


def owners(times: Sequence[Row]) -> dict[str, str]:
    """Return the label of each owner: its client id, which is stable across restarts, or client id
    and member id if several members use the client id at the same time.
    """
    clients: dict[str, set[str]] = defaultdict(set)
    for row in times:
        if row["state"] == "owned":
            clients[row.get("client_id") or row["owner"]].add(row["owner"])
    return {
        owner: f"{name(client)} as {name(owner)}" if _overlap(times, shared) else name(client)
        for client, shared in clients.items()
        for owner in shared
    }


def _overlap(times: Sequence[Row], members: set[str]) -> bool:
    """Whether two of the members owned partitions at the same time."""
    spans = sorted(
        (
            min(row["from_at_ms"] for row in owned),
            max(
                float("inf") if row["until_at_ms"] is None else row["until_at_ms"] for row in owned
            ),
        )
        for member in members
        for owned in [[r for r in times if r["owner"] == member and r["state"] == "owned"]]
    )
    return any(before[1] > after[0] for before, after in pairwise(spans))


def letters(times: Sequence[Row], labels: dict[str, str]) -> dict[str, str]:
    """Return the letter of each owner in the plot, by the owner's label."""
    owned = Counter(labels[row["owner"]] for row in times if row["state"] == "owned")
    return {label: _letter(place) for place, label in enumerate(sorted(owned))}


def _letter(place: int) -> str:
    cycle, place = divmod(place, len(_LETTERS))
    return _LETTERS[place] + (str(cycle + 1) if cycle else "")


@dataclass(frozen=True, slots=True)
class _Key:
    labels: dict[str, str]
    letters: dict[str, str]

    def letter(self, owner: str) -> str:
        return self.letters[self.labels[owner]]

    def colour(self, owner: str) -> int:
        return list(self.letters).index(self.labels[owner]) % COLOURS


def ownership(page: GroupPage) -> Markup:
    """Draw a line for each partition in the colours of its owners, dashed while it has no owner."""
    times = page.ownership.times
    labels = owners(times)
    key = _Key(labels, letters(times, labels))
    drawn = figure(lambda width: _draw(page, width, key), _alt(page, len(key.letters)))
    legend = [
        element("li", element("b", letter, class_=f"key owner-{place % COLOURS}"), " ", label)
        for place, (label, letter) in enumerate(key.letters.items())
    ]
    unread = element("li", element("b", "", class_="key unread"), " no reader")
    return Markup(drawn + element("ul", legend, unread, class_="legend"))


def _alt(page: GroupPage, owner_count: int) -> str:
    shown = page.ownership
    partitions = {(row["topic"], row["partition"]) for row in shown.times}
    unread = [row for row in shown.times if row["state"] == "unavailable"]
    text = (
        f"Owners of {counted(len(partitions), 'partition')} from {moment(shown.from_at_ms)} to "
        f"{moment(shown.until_at_ms)}: {counted(owner_count, 'owner')}."
    )
    ended = [row for row in unread if row["until_at_ms"] is not None]
    if ended:
        row = max(
            ended, key=lambda unread_row: unread_row["until_at_ms"] - unread_row["from_at_ms"]
        )
        took = duration(row["until_at_ms"] - row["from_at_ms"])
        partition = f"{name(row['topic'])}-{row['partition']}"
        text += (
            f" The longest time without a reader is {took}, of {partition} from "
            f"{clock(row['from_at_ms'])}."
        )
    return text


def _draw(page: GroupPage, width: int, key: _Key) -> Drawing:
    shown = page.ownership
    topics = {row["topic"] for row in shown.times}
    lines = sorted({(row["topic"], row["partition"]) for row in shown.times})
    # The name of a single topic is shown once, above the plot.
    names = [
        str(number) if len(topics) == 1 else f"{name(topic)}-{number}" for topic, number in lines
    ]
    left = min(max(map(len, names)) * LETTER + 8, width * 0.35)
    times = Times(shown.from_at_ms, shown.until_at_ms, left, width - 4)
    bottom = LINE + len(lines) * _ROW
    # The axis comes first, so that it is drawn behind the periods.
    parts = time_axis(times.ticks(8 if width == WIDE else 4), LINE - 3, bottom + 2, width)
    for place, label in enumerate(names):
        most = int(left / LETTER)
        cut = label if len(label) <= most else f"…{label[1 - most :]}"
        parts.append(svg_text(left - 6, LINE + place * _ROW + 13, cut, "end"))
    places = {line_key: place for place, line_key in enumerate(lines)}
    for row in shown.times:
        top = LINE + places[row["topic"], row["partition"]] * _ROW + 1
        parts += _time(row, times, top, key)
    title = f"Partitions of {name(next(iter(topics)))}" if len(topics) == 1 else "Partitions"
    parts.append(svg_text(0, 13, title, class_="title"))
    return Drawing(parts, bottom + LINE + 2)


def _time(row: Row, times: Times, top: float, key: _Key) -> list[Markup]:
    until_ms = times.until_ms if row["until_at_ms"] is None else row["until_at_ms"]
    x, end = times.place(row["from_at_ms"]), times.place(until_ms)
    across = end - x
    if across < _PIXELS_LEAST:
        return []
    tall = _ROW - 2
    if row["state"] != "owned":
        return [line(x, top + tall / 2, end, top + tall / 2, "unread")]
    parts = [box(x, top, across, tall, f"owner-{key.colour(row['owner'])}")]
    letter = key.letter(row["owner"])
    if across > LETTER * len(letter) + 4:
        parts.append(svg_text(x + across / 2, top + 12.5, letter, "middle", "letter"))
    return parts


def table_rows(page: GroupPage) -> list[Row]:
    """Return the content of the plot as text, for the table below it."""
    labels = owners(page.ownership.times)
    return [
        {
            "partition": f"{name(row['topic'])}-{row['partition']}",
            "owner": labels[row["owner"]] if row["state"] == "owned" else "no reader",
            "from": clock(row["from_at_ms"]),
            "for": NOTHING
            if row["until_at_ms"] is None
            else duration(row["until_at_ms"] - row["from_at_ms"]),
            "because": cause(row["cause"]) if row.get("cause") else "",
        }
        for row in page.ownership.times
    ]
