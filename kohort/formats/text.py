"""Formats times, counts and names for one line of text, and escapes control characters in names."""

from collections.abc import Sequence
from typing import Final

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_S: Final = 86_400


def utc_time(wall_ms: int) -> str:
    """Return the time of day, in UTC: "14:03:07"."""
    seconds = wall_ms // 1_000 % _DAY_S
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def duration(ms: int) -> str:
    """Format a duration: 850 ms, 3.2 s, 45 s, 5 min, 5 min 30 s, 9 h 11 min."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 2 * _MINUTE_MS:
        tenths = (ms + 50) // 100
        return f"{tenths // 10}.{tenths % 10} s" if tenths % 10 else f"{tenths // 10} s"
    if ms >= _HOUR_MS:
        hours, minutes = divmod(round(ms / _MINUTE_MS), 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    minutes, rest_ms = divmod(ms, _MINUTE_MS)
    return f"{minutes} min {rest_ms // 1_000} s" if rest_ms >= 1_000 else f"{minutes} min"


def shown(text: str) -> str:
    """Return `text` with every character escaped that could break a line or a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def counted(count: int, noun: str) -> str:
    """Format a count: 1 member, 2 members, 1,200 members."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(ids: Sequence[str], count: int | None = None, *, most: int = 3) -> str:
    """Format the first few ids, and how many more there are; `count` is the total number."""
    total = len(ids) if count is None else count
    names = ", ".join(shown(text) for text in ids[:most])
    left = total - min(len(ids), most)
    return f"{names} and {left} more" if left > 0 else names
