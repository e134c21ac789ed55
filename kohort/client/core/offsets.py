"""Offsets in the public API, and where to start in a partition without a valid offset."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from kohort.client.core.errors import ConfigError
from kohort.client.core.partitions import TopicPartition

OffsetSpec: TypeAlias = int
"""The offset to look up: EARLIEST, LATEST, or a timestamp in milliseconds since the epoch."""

LATEST: Final[OffsetSpec] = -1
EARLIEST: Final[OffsetSpec] = -2

UNKNOWN_EPOCH: Final = -1


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, and text that the user stores with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = UNKNOWN_EPOCH
    """Leader epoch of the last record before `offset` (KIP-320), -1 if unknown."""


ToCommit: TypeAlias = int | tuple[int, str] | OffsetAndMetadata
"""The next offset to read: alone, with metadata text, or also with a leader epoch."""

OFFSET_MAX: Final = (1 << 63) - 1
"""The maximum of the protocol's int64; timestamps have the same bound."""

_EPOCH_MAX: Final = (1 << 31) - 1


def check_offset(offset: object, leader_epoch: object = UNKNOWN_EPOCH) -> None:
    """Check that an offset is valid, before it is stored anywhere.

    Raises:
        TypeError: an argument is not an int.
        ValueError: an argument is out of range.
    """
    _check_int("offset", offset, 0, OFFSET_MAX)
    _check_int("leader epoch", leader_epoch, UNKNOWN_EPOCH, _EPOCH_MAX)


def as_committed(
    offsets: Mapping[TopicPartition, ToCommit],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert users' offsets, also aiokafka's (offset, metadata). Raises TypeError, ValueError."""
    for partition in offsets:
        if not isinstance(partition, tuple):
            raise TypeError(f"{partition!r} is not a TopicPartition: each offset is given for one")
    return {TopicPartition(*tp): _with_metadata(given) for tp, given in offsets.items()}


def _with_metadata(given: ToCommit) -> OffsetAndMetadata:
    made = OffsetAndMetadata(*given) if isinstance(given, tuple) else OffsetAndMetadata(given)
    check_offset(made.offset, made.leader_epoch)
    return made


def check_time(timestamp_ms: object) -> None:
    """Check that a timestamp is valid. Raises TypeError, ValueError."""
    _check_int("time", timestamp_ms, 0, OFFSET_MAX)


def _check_int(what: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} {value!r} is not an int but of type {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{what} {value} is not between {least} and {most}")


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after the requested timestamp."""

    offset: int
    timestamp_ms: int
    """The record's timestamp; -1 if EARLIEST or LATEST was requested."""
    leader_epoch: int = UNKNOWN_EPOCH

    @property
    def timestamp(self) -> int:
        """`timestamp_ms` under aiokafka's name."""
        return self.timestamp_ms


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
    """auto.offset.reset: where to start without a committed offset, or with one out of range."""

    spec: OffsetSpec | None
    """EARLIEST or LATEST; None: raise an error, or use the duration if there is one."""
    duration_ms: int | None = None
    """Start with records that are at most this old (KIP-1106)."""

    @classmethod
    def parse(cls, text: str) -> ResetPolicy:
        """Parse the setting in one of Kafka's four forms.

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
    """Parse a duration as Java's Duration.parse does, and return milliseconds."""
    match = _DURATION.fullmatch(text.upper())
    parts = {unit: value for unit, value in match.groupdict().items() if value} if match else {}
    if not parts or text.upper().endswith("T"):
        raise ConfigError(f"auto_offset_reset {_MEANING}; {text!r} is not a duration")
    return int(sum(float(value) * _UNIT_MS[unit] for unit, value in parts.items()))
