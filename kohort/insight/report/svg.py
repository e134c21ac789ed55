"""SVG parts of all plots, each drawn twice: for wide pages and for phones.

On a phone, a scaled plot would have text of seven pixels, so the style sheet shows the drawing that
fits. It also sets the colours by class, for light and dark mode; text is not converted to paths.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kohort.insight.report.markup import Child, Markup, element
from kohort.insight.report.scales import Tick

WIDE: Final = 900
NARROW: Final = 350
LETTER: Final = 6.8
"""The average width of a letter in points."""
DIGIT: Final = 8.3
"""The width of a digit in points."""
LINE: Final = 18

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Drawing:
    parts: Sequence[Child]
    height: float


def figure(draw: Callable[[int], Drawing], alt: str, caption: Child = None) -> Markup:
    """Return the plot, drawn for wide pages and for phones. `alt` is for screen readers."""
    drawings = [_svg(draw(width), width, alt) for width in (WIDE, NARROW)]
    note = element("figcaption", caption) if caption is not None else None
    return element("figure", drawings, note)


def _svg(drawing: Drawing, width: int, alt: str) -> Markup:
    return element(
        "svg",
        drawing.parts,
        class_="wide" if width == WIDE else "narrow",
        viewBox=f"0 0 {width} {drawing.height:.0f}",
        role="img",
        aria_label=alt,
    )


def svg_text(
    x: float, y: float, content: Child, anchor: Anchor = "start", class_: str | None = None
) -> Markup:
    place = None if anchor == "start" else anchor
    return element("text", content, x=x, y=y, text_anchor=place, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def box(x: float, y: float, width: float, height: float, class_: str) -> Markup:
    return element("rect", x=x, y=y, width=width, height=height, class_=class_)


def time_axis(ticks: Sequence[Tick], top: float, bottom: float, right: float) -> list[Markup]:
    """Draw vertical lines, with the time below each."""
    parts = []
    for x, label in ticks:
        half = len(label) * DIGIT / 2
        parts.append(line(x, top, x, bottom, "grid"))
        parts.append(svg_text(min(max(x, half), right - half), bottom + LINE - 4, label, "middle"))
    return parts


def value_axis(ticks: Sequence[Tick], left: float, right: float) -> list[Markup]:
    """Draw horizontal lines, with the value to the left of each."""
    parts = []
    for y, label in ticks:
        parts.append(line(left, y, right, y, "grid"))
        parts.append(svg_text(left - 6, y + 4, label, "end"))
    return parts
