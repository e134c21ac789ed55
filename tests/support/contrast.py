"""How well colours can be told apart: ratios of WCAG 2.2, level AA, and the palettes of a style."""

import re
from typing import Final, TypeAlias

Palette: TypeAlias = dict[str, str]

TEXT: Final = 4.5
GRAPHICS: Final = 3.0
"""The least ratios: of text of any size, and of what has to be seen to understand a plot."""

_NAMED = re.compile(r"--([\w-]+): (#[0-9a-f]{6});")


def palettes(style: str) -> dict[str, Palette]:
    """The named colours of a style, whose blocks alternate between light and dark."""
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    light = dict(_NAMED.findall("".join(blocks[::2])))
    return {"light": light, "dark": light | dict(_NAMED.findall("".join(blocks[1::2])))}


def luminance(colour: str) -> float:
    def linear(part: int) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(part) for part in bytes.fromhex(colour[1:]))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ratio(one: str, other: str) -> float:
    """From 1, the same, to 21, black on white."""
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def hexadecimal(colour: str) -> str:
    """A colour as a browser tells it, "rgb(18, 24, 30)", in the form of a style."""
    red, green, blue = re.findall(r"\d+", colour)[:3]
    return f"#{int(red):02x}{int(green):02x}{int(blue):02x}"
