"""Checks of a batch's records, in steps: each generator yields where other work may run.

A batch of 1 MB can contain 150,000 records, a compressed one ten million. Each step takes a few
milliseconds, so that a large or hostile batch delays only its sender.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kohort.broker.core.partition.verdict import RecordError
from kohort.broker.core.steps import Steps
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import NO_TIMESTAMP, BatchHeader
from kohort.protocol.records.varint import read_varint
from kohort.protocol.records.walk import RECORD_BYTES_MIN, read_span, skip_records

RECORD_ERRORS_MAX = 100
"""The most records of one batch that a response explains; Kafka explains all of them."""

_FRAMES_PER_STEP = 16_384
_RECORDS_PER_STEP = 2_048
"""Records, and headers of records, that are parsed in one step."""

_NO_KEY = "Compacted topic cannot accept message without key"

_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)

Block = bytes | memoryview


def framing_steps(block: Block, record_count: int) -> Steps[None]:
    """Check that the first record parses and the lengths of all fill the block exactly, or raise
    DecodeError.

    Most errors that producers make in records also occur in the first one.
    """
    _check_count(block, record_count)
    first = read_span(block, 0)
    if first.offset_delta != 0:
        raise DecodeError(f"record 0 has offset delta {first.offset_delta}")
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
    """The timestamps that a topic accepts, both ends included; NO_TIMESTAMP is always accepted."""

    earliest: float
    latest: float
    """Integers, or infinite."""

    def __contains__(self, timestamp: int) -> bool:
        return self.earliest <= timestamp <= self.latest or timestamp == NO_TIMESTAMP

    def objection(self, timestamp: int, index: int) -> RecordError:
        """Return the error for the record at `index`."""
        return RecordError(
            index,
            f"Timestamp {timestamp} of message with offset {index} is out of range. "
            f"The timestamp should be within [{self.earliest}, {self.latest}]",
        )


ANY_TIMESTAMP = TimestampRange(-math.inf, math.inf)
"""The range for records whose own timestamps are not used."""


def timestamp_range(wall_ms: int, before_max_ms: int, after_max_ms: int) -> TimestampRange:
    """Return what message.timestamp.before.max.ms and .after.max.ms allow at this time."""
    return TimestampRange(
        max(wall_ms - before_max_ms, _INT64_MIN), min(wall_ms + after_max_ms, _INT64_MAX)
    )


@dataclass(slots=True, eq=False)
class RecordRules:
    """The rules for every single record, and the violations found."""

    timestamps: TimestampRange
    needs_key: bool
    body_bytes_max: int
    """Limit for a record without its length field."""
    max_timestamp: int = NO_TIMESTAMP
    """Highest timestamp of the records, once all have been examined."""
    bad_timestamps: int = 0
    bad_keys: int = 0
    errors: list[RecordError] = field(default_factory=list)
    """The first RECORD_ERRORS_MAX of them."""

    def object(self, error: RecordError) -> None:
        """Add a violation."""
        if len(self.errors) < RECORD_ERRORS_MAX:
            self.errors.append(error)


def full_steps(block: Block, header: BatchHeader, rules: RecordRules) -> Steps[None]:
    """Check that every record parses, follows the one before it and obeys `rules`, or raise
    DecodeError.

    Violations of `rules` are not raised but added to it.
    """
    count, base_timestamp = header.record_count, header.base_timestamp
    _check_count(block, count)
    needs_key, body_bytes_max = rules.needs_key, rules.body_bytes_max
    earliest, latest = rules.timestamps.earliest, rules.timestamps.latest
    max_timestamp, position = NO_TIMESTAMP, 0
    left_in_step = _RECORDS_PER_STEP
    for index in range(count):
        if left_in_step <= 0:
            left_in_step = _RECORDS_PER_STEP
            yield
        span = read_span(block, position)
        left_in_step -= 1 + span.header_count
        if span.offset_delta != index:
            raise DecodeError(f"record {index} has offset delta {span.offset_delta}")
        if span.stop - position > body_bytes_max:
            _check_body(block, position, body_bytes_max)
        position = span.stop
        timestamp = base_timestamp + span.timestamp_delta
        if timestamp > max_timestamp:  # noqa: PLR1730 - a call to max() costs as much as a field.
            max_timestamp = timestamp
        if needs_key and span.key_length < 0:
            rules.bad_keys += 1
            rules.object(RecordError(index, _NO_KEY))
        elif not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
            rules.bad_timestamps += 1
            rules.object(rules.timestamps.objection(timestamp, index))
    if position != len(block):
        raise DecodeError(f"{count} records end at byte {position} of {len(block)}")
    rules.max_timestamp = max_timestamp
