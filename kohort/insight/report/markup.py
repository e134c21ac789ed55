"""HTML and SVG as a tree of elements, in which text is always escaped.

Names of groups and members are chosen by clients. Each is escaped where it enters the page, and
unprintable characters are written as escapes, so that a name cannot become markup, change the text
direction or end the file early.
"""

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

from kohort.formats.text import shown

NBSP: Final = "\u00a0"
"""No-break space, between a number and its unit."""
TEXT_CHARS_MAX: Final = 2_000
"""Maximum length of a text. The broker's longest description of a rebalance is shorter."""
_VOID: Final = frozenset({"meta", "br", "col", "wbr"})


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
Attribute: TypeAlias = str | float | bool | None


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Make an element. Children that are not Markup are escaped, and None is omitted.

    Attributes: `class_` and `for_` become `class` and `for`, other underscores become hyphens; None
    and False are omitted, and True has no value.
    """
    opened = f"<{name}{''.join(_attributes(attributes))}>"
    return Markup(opened if name in _VOID else f"{opened}{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    return Markup("".join(map(_child, children)))


def text(value: str) -> Markup:
    """Return the text in printable form, on one line; no-break spaces are preserved."""
    if len(value) > TEXT_CHARS_MAX:
        value = value[:TEXT_CHARS_MAX] + "…"
    return Markup(escape(NBSP.join(map(shown, value.split(NBSP)))))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, (str, int)):
        return text(str(child))
    return join(child)


def _attributes(attributes: dict[str, Attribute]) -> Iterable[str]:
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        written = name.rstrip("_").replace("_", "-")
        if value is True:
            yield f" {written}"
        else:
            shape = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
            yield f' {written}="{text(shape)}"'
