"""The plot of the settings that were tried: rebalances against stopped time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.insight.counting import counted
from kohort.insight.report.answer import FirstScreen
from kohort.insight.report.contents import Row
from kohort.insight.report.labels import Dot, place
from kohort.insight.report.markup import Markup, element
from kohort.insight.report.scales import Values
from kohort.insight.report.svg import LINE, WIDE, Drawing, figure, line, value_axis, words
from kohort.insight.report.words import name, seconds

_HEIGHT: Final = {True: 300, False: 260}
_LEFT: Final = 56
_RADIUS: Final = 6.0
RECORDED: Final = "as it is"


def front(rows: list[Row], answer: FirstScreen) -> Markup:
    """Draw a dot for each setting. Those worth considering have the numbers of the table."""
    return figure(lambda width: _draw(rows, answer, width), alt(rows, answer), _CAPTION)


_CAPTION: Final = (
    "Filled: the settings of the table, by number, with a star the one that gains most. The "
    "diamond is what there is, rings are what else was tried. Further down and to the left is "
    "better."
)


def alt(rows: list[Row], answer: FirstScreen) -> str:
    text = f"Rebalances and stopped seconds under {counted(len(rows), 'setting')}."
    if answer.recorded is not None:
        text += f" As it is: {_told(answer.recorded)}."
    if answer.best is not None:
        text += f" The one that gains most: {_told(answer.best)}."
    return text


def _told(row: Row) -> str:
    return f"{counted(row['rebalances'], 'rebalance')}, {seconds(row['stopped_ms'])} s stopped"


def _draw(rows: list[Row], answer: FirstScreen, width: int) -> Drawing:
    height = _HEIGHT[width == WIDE]
    right, bottom = width - 12.0, height - 2.5 * LINE
    across = Values.of([float(row["rebalances"]) for row in rows], _LEFT + 8, right)
    down = Values.of([row["stopped_ms"] / 1000 for row in rows], bottom - 8, LINE + 8.0)

    def dot(row: Row) -> Dot:
        return Dot(across.place(row["rebalances"]), down.place(row["stopped_ms"] / 1000), _RADIUS)

    parts: list[Markup] = [words(0, 13, _titled("Seconds stopped", down), class_="title")]
    parts += value_axis(down.ticks(6), _LEFT, right)
    for x, named in across.ticks(8 if width == WIDE else 5):
        parts.append(line(x, LINE, x, bottom, "grid"))
        parts.append(words(x, bottom + LINE - 2, named, "middle"))
    title = _titled("Rebalances", across)
    parts.append(words(right, height - 4, title, "end", "title"))
    told = [row for row in rows if row["is_on_front"] or row["is_recorded"]]
    others = {(one.x, one.y): one for row in rows if row not in told for one in [dot(row)]}
    parts += [_circle(one, "tried") for one in others.values()]
    parts += [_circle(dot(row), "choice") for row in (*answer.choices, *_quicker(answer))]
    if answer.recorded is not None:
        parts.append(_diamond(dot(answer.recorded)))
    return Drawing([*parts, *_numbers(answer, dot, (float(width), height))], height)


def _quicker(answer: FirstScreen) -> list[Row]:
    return [] if answer.quicker is None else [answer.quicker]


def _titled(title: str, axis: Values) -> str:
    return title if axis.is_even else f"{title} (by powers of ten)"


def _circle(one: Dot, style: str) -> Markup:
    return element("circle", cx=one.x, cy=one.y, r=one.radius, class_=style)


def _diamond(one: Dot) -> Markup:
    r = one.radius + 2
    points = [(one.x, one.y - r), (one.x + r, one.y), (one.x, one.y + r), (one.x - r, one.y)]
    return element(
        "polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_="recorded"
    )


def _numbers(
    answer: FirstScreen, dot: Callable[[Row], Dot], room: tuple[float, float]
) -> list[Markup]:
    named = [
        (f"{number}{' ★' if row['is_best'] else ''}", dot(row))
        for number, row in enumerate(answer.choices, start=1)
    ]
    named += [(name(row["quicker_member"]), dot(row)) for row in _quicker(answer)]
    if answer.recorded is not None:
        named.append((RECORDED, dot(answer.recorded)))
    texts, dots = [text for text, _ in named], [one for _, one in named]
    parts = []
    for text, one, label in zip(texts, dots, place(texts, dots, [], room), strict=True):
        if label.is_far:
            parts.append(line(one.x, one.y, label.x, label.y, "tie"))
        parts.append(words(label.x, label.y + 4, text, "middle", "number"))
    return parts
