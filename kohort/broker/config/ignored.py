"""Broker settings of any release of Kafka that have no effect here, with the reason.

They are accepted, so that a server.properties made for Kafka can be used unchanged; the log names
them once at start. They are listed in ignored.txt, which also explains its lines.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final


def _read(text: str) -> dict[str, list[str]]:
    """Return the lines of each section by its reason."""
    sections = (section.split("]\n") for section in text.split("\n[")[1:])
    return {reason: lines.split("\n") for reason, lines in sections}


_ALL: Final = _read(Path(__file__).with_name("ignored.txt").read_text(encoding="utf-8"))

LINES: Final = {
    reason: tuple(line for line in lines if line and not line.endswith("*"))
    for reason, lines in _ALL.items()
}
"""The lines of all ignored settings, by the reason."""

IGNORED: Final[Mapping[str, str]] = {
    line.partition(" ")[0]: reason for reason, lines in LINES.items() for line in lines
}
"""Why each ignored setting has no effect, by name."""

IGNORED_PREFIXES: Final[Mapping[str, str]] = {
    line.removesuffix("*"): reason
    for reason, lines in _ALL.items()
    for line in lines
    if line.endswith("*")
}
"""The same for families of settings whose names have a common prefix."""


def why_ignored(name: str) -> str | None:
    """Why a setting of Kafka has no effect here; None for any other name."""
    if name in IGNORED:
        return IGNORED[name]
    return next((why for prefix, why in IGNORED_PREFIXES.items() if name.startswith(prefix)), None)
