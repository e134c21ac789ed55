"""Checks behind the header of a batch, in steps: each generator yields where others may go first.

A batch of 1 MB can hold 150,000 records, a compressed one ten million. The steps are of a few
milliseconds each, so that a large or hostile batch costs its sender time and nobody else.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from broker.core.partition.verdict import RecordError
from protocol.errors import DecodeError
from protocol.records.batch import NO_TIMESTAMP, BatchHeader
from protocol.records.record import RECORD_BYTES_MIN, read_span, skip_records
from protocol.records.varint import read_varint

RECORD_ERRORS_MAX = 100
"""Most records of one batch that an answer explains; Kafka explains all of them."""

_FRAMES_PER_STEP = 16_384
_RECORDS_PER_STEP = 2_048

_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)

Block = bytes | memoryview
Steps = Generator[None, None, None]


def framing_steps(block: Block, record_count: int) -> Steps:
    """The lengths of `record_count` records fill the block exactly, else DecodeError."""
    _check_count(block, record_count)
    position, left = 0, record_count
    while left > _FRAMES_PER_STEP:
        position = skip_records(block, position, _FRAMES_PER_STEP)
        left -= _FRAMES_PER_STEP
        yield
    position = skip_records(block, position, left)
    if position != len(block):
        raise DecodeError(f"{record_count} records end at byte {position} of {len(block)}")


def _check_count(block: Block, record_count: int) -> None:
    if record_count > len(block) // RECORD_BYTES_MIN:
        raise DecodeError(f"{record_count} records in {len(block)} bytes")


def _check_body(block: Block, position: int, body_bytes_max: int) -> None:
    body_bytes, _ = read_varint(block, position)
    if body_bytes > body_bytes_max:
        raise DecodeError(f"record of {body_bytes} bytes where {body_bytes_max} are allowed")


@dataclass(frozen=True, slots=True)
class TimestampRange:
    """The timestamps a topic accepts, both ends included; NO_TIMESTAMP always is."""

    earliest: int
    latest: int

    def __contains__(self, timestamp: int) -> bool:
        return self.earliest <= timestamp <= self.latest or timestamp == NO_TIMESTAMP

    def objection(self, timestamp: int, index: int) -> RecordError:
        """Why the record at `index` is refused."""
        return RecordError(
            index,
            f"Timestamp {timestamp} of message with offset {index} is out of range. "
            f"The timestamp should be within [{self.earliest}, {self.latest}]",
        )


def timestamp_range(wall_ms: int, before_max_ms: int, after_max_ms: int) -> TimestampRange:
    """What message.timestamp.before.max.ms and .after.max.ms allow at this moment."""
    return TimestampRange(
        max(wall_ms - before_max_ms, _INT64_MIN), min(wall_ms + after_max_ms, _INT64_MAX)
    )


@dataclass(slots=True)
class RecordRules:
    """What every single record is held to, and what was found."""

    timestamps: TimestampRange | None
    """None where the broker sets the timestamps."""
    needs_key: bool
    body_bytes_max: int
    """Limit of a record without its length field."""
    max_timestamp: int = NO_TIMESTAMP
    """Highest timestamp among the records looked at so far."""
    bad_timestamps: int = 0
    bad_keys: int = 0
    errors: list[RecordError] = field(default_factory=list)
    """The first RECORD_ERRORS_MAX of them."""

    def object(self, error: RecordError) -> None:
        """Note what is wrong with a record."""
        if len(self.errors) < RECORD_ERRORS_MAX:
            self.errors.append(error)


def full_steps(block: Block, header: BatchHeader, rules: RecordRules) -> Steps:
    """Every record parses, follows the one before it and is held to `rules`, else DecodeError.

    Violations of `rules` do not raise; they are noted there.
    """
    _check_count(block, header.record_count)
    position, base_timestamp, size = 0, header.base_timestamp, len(block)
    max_timestamp, timestamps = NO_TIMESTAMP, rules.timestamps
    for index in range(header.record_count):
        span = read_span(block, position)
        if span.offset_delta != index:
            raise DecodeError(f"record {index} has offset delta {span.offset_delta}")
        if span.stop - position > rules.body_bytes_max:
            _check_body(block, position, rules.body_bytes_max)
        position = span.stop
        if rules.needs_key and span.key_length < 0:
            rules.bad_keys += 1
            rules.object(RecordError(index, "Compacted topic cannot accept message without key"))
        if timestamps is not None:
            timestamp = base_timestamp + span.timestamp_delta
            max_timestamp = max(max_timestamp, timestamp)
            if timestamp not in timestamps:
                rules.bad_timestamps += 1
                rules.object(timestamps.objection(timestamp, index))
        if index % _RECORDS_PER_STEP == _RECORDS_PER_STEP - 1:
            yield
    if position != size:
        raise DecodeError(f"{header.record_count} records end at byte {position} of {size}")
    rules.max_timestamp = max_timestamp
