"""Moments and durations as they are written on the command line, in ISO 8601."""

import argparse
import re
from datetime import datetime
from typing import Final

_DURATION: Final = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)
_UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def moment_ms(text: str) -> int:
    """Milliseconds since 1970; local time unless the text says otherwise.

    Raises argparse.ArgumentTypeError.
    """
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; 2026-11-23T06:00:00 is one"
        ) from None


def duration_ms(text: str) -> int:
    """Milliseconds of PT1H30M or P7D. Raises argparse.ArgumentTypeError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; PT1H30M is one, and P7D")
    parts = found.groupdict(default="0")
    return int(sum(float(parts[unit]) * factor for unit, factor in _UNIT_MS.items()))
