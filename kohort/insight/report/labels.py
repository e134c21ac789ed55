"""Places the numbers of dots so that they cover no other numbers or important dots.

Each label takes the nearest free of a few places around its dot, in the given order. With a dozen
dots the result is as readable as with methods that move all labels at once, and it is
deterministic.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Point = tuple[float, float]

HEIGHT: Final = 10.0
WIDTH_OF_DIGIT: Final = 7.0
"""The width of a digit in points, in the font of the plots."""

_GAPS: Final = (3.0, 12.0, 22.0, 34.0, 48.0)
"""Distances from a dot to its label; from the second on, a line connects them."""

_ANGLES: Final = (45, 90, 0, 135, -45, 180, -90, -135)


@dataclass(frozen=True, slots=True)
class Dot:
    """A dot of the plot; lengths are in points."""

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
    """Place a label for each of `dots`, within a plot of size `room`, without covering `others`."""
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
