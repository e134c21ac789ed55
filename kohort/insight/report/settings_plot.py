"""Plots the settings that were tried: rebalances against stopped time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kohort.formats.text import counted
from kohort.insight.report.answer import FirstScreen
from kohort.insight.report.contents import Row
from kohort.insight.report.markup import Markup, element
from kohort.insight.report.scales import Values
from kohort.insight.report.svg import LINE, WIDE, Drawing, figure, line, svg_text, value_axis
from kohort.insight.report.text import name, seconds

Point = tuple[float, float]

HEIGHT: Final = 10.0
WIDTH_OF_DIGIT: Final = 7.0
"""The width of a digit in points, in the font of the plots."""

_GAPS: Final = (3.0, 12.0, 22.0, 34.0, 48.0)
"""Distances from a dot to its label; from the second on, a line connects them."""

_ANGLES: Final = (45, 90, 0, 135, -45, 180, -90, -135)


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    radius: float


@dataclass(frozen=True, slots=True)
class Label:
    """The middle of a text; `is_far` if a line must connect it to its dot."""

    x: float
    y: float
    is_far: bool


def place(
    texts: Sequence[str], dots: Sequence[Dot], others: Sequence[Dot], room: Point
) -> list[Label]:
    """Place a label for each of `dots`, within a plot of size `room`, without covering `others`.

    Each label takes the nearest free of a few places around its dot, in the given order. With a
    dozen dots the result is as readable as with methods that move all labels at once, and it is
    deterministic.
    """
    taken: list[tuple[Label, float]] = []
    for text, dot in zip(texts, dots, strict=True):
        width = WIDTH_OF_DIGIT * len(text)
        choices = [label for label in _around(dot, width) if _is_within(label, width, room)]
        covered = [_covered(label, width, taken, [*dots, *others]) for label in choices]
        best = choices[covered.index(min(covered))] if choices else Label(dot.x, dot.y, False)
        taken.append((best, width))
    return [label for label, _ in taken]


def _around(dot: Dot, width: float) -> list[Label]:
    labels = []
    for ring, gap in enumerate(_GAPS):
        for angle in _ANGLES:
            across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            reach = dot.radius + gap
            x = dot.x + across * (reach + width / 2)
            y = dot.y + up * (reach + HEIGHT / 2)
            labels.append(Label(x, y, ring > 0))
    return labels


def _is_within(label: Label, width: float, room: Point) -> bool:
    return (
        width / 2 <= label.x <= room[0] - width / 2
        and HEIGHT / 2 <= label.y <= room[1] - HEIGHT / 2
    )


def _covered(
    label: Label, width: float, taken: Sequence[tuple[Label, float]], dots: Sequence[Dot]
) -> int:
    """Return the number of labels and dots that the label would cover."""
    labels = sum(
        abs(label.x - other.x) < (width + other_width) / 2 and abs(label.y - other.y) < HEIGHT
        for other, other_width in taken
    )
    return labels + sum(
        math.hypot(
            max(abs(label.x - dot.x) - width / 2, 0), max(abs(label.y - dot.y) - HEIGHT / 2, 0)
        )
        < dot.radius
        for dot in dots
    )


_HEIGHT: Final = {True: 300, False: 260}
_LEFT: Final = 56
_RADIUS: Final = 6.0
RECORDED: Final = "as recorded"


def front(rows: list[Row], answer: FirstScreen) -> Markup:
    """Draw a dot for each setting. Those worth considering have the numbers of the table."""
    return figure(lambda width: _draw(rows, answer, width), alt(rows, answer), _CAPTION)


_CAPTION: Final = (
    "Filled: the settings of the table, by number, the best one with a star. The diamond is the "
    "recorded setting, rings are other settings that were tried. Lower left is better."
)


def alt(rows: list[Row], answer: FirstScreen) -> str:
    text = f"Rebalances and stopped seconds under {counted(len(rows), 'setting')}."
    if answer.recorded is not None:
        text += f" As recorded: {_result(answer.recorded)}."
    if answer.best is not None:
        text += f" The best one: {_result(answer.best)}."
    return text


def _result(row: Row) -> str:
    return f"{counted(row['rebalances'], 'rebalance')}, {seconds(row['stopped_ms'])} s stopped"


def _draw(rows: list[Row], answer: FirstScreen, width: int) -> Drawing:
    height = _HEIGHT[width == WIDE]
    right, bottom = width - 12.0, height - 2.5 * LINE
    across = Values.covering([float(row["rebalances"]) for row in rows], _LEFT + 8, right)
    down = Values.covering([row["stopped_ms"] / 1000 for row in rows], bottom - 8, LINE + 8.0)

    def dot(row: Row) -> Dot:
        return Dot(across.place(row["rebalances"]), down.place(row["stopped_ms"] / 1000), _RADIUS)

    parts: list[Markup] = [svg_text(0, 13, _titled("Seconds stopped", down), class_="title")]
    parts += value_axis(down.ticks(6), _LEFT, right)
    for x, label in across.ticks(8 if width == WIDE else 5):
        parts.append(line(x, LINE, x, bottom, "grid"))
        parts.append(svg_text(x, bottom + LINE - 2, label, "middle"))
    title = _titled("Rebalances", across)
    parts.append(svg_text(right, height - 4, title, "end", "title"))
    shown = [row for row in rows if row["is_on_front"] or row["is_recorded"]]
    others = {(other.x, other.y): other for row in rows if row not in shown for other in [dot(row)]}
    parts += [_circle(other, "tried") for other in others.values()]
    parts += [_circle(dot(row), "choice") for row in (*answer.choices, *_quicker(answer))]
    if answer.recorded is not None:
        parts.append(_diamond(dot(answer.recorded)))
    return Drawing([*parts, *_numbers(answer, dot, (float(width), height))], height)


def _quicker(answer: FirstScreen) -> list[Row]:
    return [] if answer.quicker is None else [answer.quicker]


def _titled(title: str, axis: Values) -> str:
    return title if axis.is_linear else f"{title} (by powers of ten)"


def _circle(dot: Dot, style: str) -> Markup:
    return element("circle", cx=dot.x, cy=dot.y, r=dot.radius, class_=style)


def _diamond(dot: Dot) -> Markup:
    r = dot.radius + 2
    points = [(dot.x, dot.y - r), (dot.x + r, dot.y), (dot.x, dot.y + r), (dot.x - r, dot.y)]
    return element(
        "polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_="recorded"
    )


def _numbers(
    answer: FirstScreen, dot: Callable[[Row], Dot], room: tuple[float, float]
) -> list[Markup]:
    labelled = [
        (f"{number}{' ★' if row['is_best'] else ''}", dot(row))
        for number, row in enumerate(answer.choices, start=1)
    ]
    labelled += [(name(row["quicker_member"]), dot(row)) for row in _quicker(answer)]
    if answer.recorded is not None:
        labelled.append((RECORDED, dot(answer.recorded)))
    texts, dots = [text for text, _ in labelled], [point for _, point in labelled]
    parts = []
    for text, point, label in zip(texts, dots, place(texts, dots, [], room), strict=True):
        if label.is_far:
            parts.append(line(point.x, point.y, label.x, label.y, "tie"))
        parts.append(svg_text(label.x, label.y + 4, text, "middle", "number"))
    return parts
