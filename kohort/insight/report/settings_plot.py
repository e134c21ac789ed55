"""Plots the settings that were tried: rebalances against stopped time."""

from collections.abc import Callable
from typing import Final

from kohort.insight.output import counted
from kohort.insight.report.answer import FirstScreen
from kohort.insight.report.contents import Row
from kohort.insight.report.labels import Dot, place
from kohort.insight.report.markup import Markup, element
from kohort.insight.report.scales import Values
from kohort.insight.report.svg import LINE, WIDE, Drawing, figure, line, svg_text, value_axis
from kohort.insight.report.text import name, seconds

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
