"""auto.offset.reset: where positions without a valid offset start."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kohort.client.core.errors import ConfigError
from kohort.client.core.offsets import EARLIEST, LATEST, OffsetSpec

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)
_UNIT_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_BY_DURATION: Final = "by_duration:"
_MEANING: Final = (
    "must be earliest, latest, none or by_duration:<ISO 8601>, such as by_duration:PT1H"
)


class ResetPolicy(NamedTuple):
    """Where to start without a committed offset, or with one out of range."""

    spec: OffsetSpec | None
    """EARLIEST or LATEST; None: raise an error, or use the duration if there is one."""
    duration_ms: int | None = None
    """Start with records that are at most this old (KIP-1106)."""

    @classmethod
    def parse(cls, text: str) -> ResetPolicy:
        """Parse one of Kafka's four forms.

        Raises:
            ConfigError: it is none of them.
        """
        if text.startswith(_BY_DURATION):
            return cls(None, _milliseconds(text.removeprefix(_BY_DURATION)))
        policy = _POLICIES.get(text)
        if policy is None:
            raise ConfigError(f"auto_offset_reset {_MEANING}, not {text!r}")
        return policy

    def spec_at(self, wall_ms: int) -> OffsetSpec | None:
        """The offset spec to look up, with `wall_ms` as the current time; None: raise an error."""
        return self.spec if self.duration_ms is None else max(0, wall_ms - self.duration_ms)


RESET_EARLIEST: Final = ResetPolicy(EARLIEST)
RESET_LATEST: Final = ResetPolicy(LATEST)
RESET_NONE: Final = ResetPolicy(None)

_POLICIES: Final = {"earliest": RESET_EARLIEST, "latest": RESET_LATEST, "none": RESET_NONE}


def _milliseconds(text: str) -> int:
    """Parse a duration in days, hours, minutes and seconds, as Java's Duration.parse does; in
    milliseconds.
    """
    match = _DURATION.fullmatch(text.upper())
    parts = {unit: value for unit, value in match.groupdict().items() if value} if match else {}
    if not parts or text.upper().endswith("T"):
        raise ConfigError(f"auto_offset_reset {_MEANING}; {text!r} is not a duration")
    return int(sum(float(value) * _UNIT_MS[unit] for unit, value in parts.items()))
