"""Offsets in the public API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from kohort.client.core.partitions import TopicPartition

OffsetSpec: TypeAlias = int
"""The offset to look up: EARLIEST, LATEST, or a timestamp in milliseconds since the epoch."""

LATEST: Final[OffsetSpec] = -1
EARLIEST: Final[OffsetSpec] = -2

UNKNOWN_EPOCH: Final = -1


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, and metadata of the user's."""

    offset: int
    metadata: str = ""
    leader_epoch: int = UNKNOWN_EPOCH
    """Leader epoch of the last record before that offset (KIP-320), -1 if unknown."""


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
    """Convert offsets as users give them, including aiokafka's pairs. Raises as `check_offset`."""
    return {TopicPartition(*tp): _with_metadata(given) for tp, given in offsets.items()}


def _with_metadata(given: ToCommit) -> OffsetAndMetadata:
    made = OffsetAndMetadata(*given) if isinstance(given, tuple) else OffsetAndMetadata(given)
    check_offset(made.offset, made.leader_epoch)
    return made


def check_time(timestamp_ms: object) -> None:
    """Check that a timestamp is a valid number of milliseconds since the epoch. Raises as
    `check_offset`.
    """
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
    """The record's timestamp; -1 if an end of the log was requested."""
    leader_epoch: int = UNKNOWN_EPOCH

    @property
    def timestamp(self) -> int:
        """The same under aiokafka's name."""
        return self.timestamp_ms
