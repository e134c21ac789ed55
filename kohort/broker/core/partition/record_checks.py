"""Checks of a batch's records, in steps: the generators yield to let other work run.

A batch of 1 MB can contain 150,000 records, a compressed one ten million. Each step takes a few
milliseconds, so that a large or hostile batch delays only its sender.
"""

import math
from dataclasses import dataclass, field

from kohort.broker.core.partition.verdict import RecordError
from kohort.groups.steps import Steps
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import NO_TIMESTAMP, BatchHeader
from kohort.protocol.records.walk import RECORD_BYTES_MIN, check_records, read_span

RECORD_ERRORS_MAX = 100
"""Maximum record errors in the response to a batch; Kafka has no limit."""

_EFFORT_PER_STEP = 8_192
"""Records, and headers of records, that are checked in one step: 0.2 ms, or 10 ms without the
compiled code."""

_SPANS_PER_STEP = 2_048
"""Records and headers per step of the slower checks, which create an object for each record."""

_NO_KEY = "Compacted topic cannot accept message without key"

_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)

Block = bytes | memoryview


@dataclass(frozen=True, slots=True)
class TimestampRange:
    """The timestamps that a topic accepts, both ends included; NO_TIMESTAMP is always accepted."""

    earliest: float
    latest: float
    """Like `earliest`, an integer, or infinite for no limit."""

    def __contains__(self, timestamp: int) -> bool:
        return self.earliest <= timestamp <= self.latest or timestamp == NO_TIMESTAMP

    def objection(self, timestamp: int, index: int) -> RecordError:
        return RecordError(
            index,
            f"Timestamp {timestamp} of message with offset {index} is out of range. "
            f"The timestamp should be within [{self.earliest}, {self.latest}]",
        )


ANY_TIMESTAMP = TimestampRange(-math.inf, math.inf)
"""The range for records whose own timestamps are not used."""


def timestamp_range(wall_ms: int, before_max_ms: int, after_max_ms: int) -> TimestampRange:
    """Return the range that message.timestamp.before.max.ms and .after.max.ms allow now."""
    if before_max_ms == after_max_ms == _INT64_MAX:
        return ANY_TIMESTAMP
    return TimestampRange(
        max(wall_ms - before_max_ms, _INT64_MIN), min(wall_ms + after_max_ms, _INT64_MAX)
    )


@dataclass(slots=True, eq=False)
class RecordRules:
    """The rules for every single record, and the violations found."""

    timestamps: TimestampRange
    needs_key: bool
    body_bytes_max: int
    """Maximum bytes of a record, not counting its length field."""
    max_timestamp: int = NO_TIMESTAMP
    """Highest timestamp of the records, once all have been examined."""
    bad_timestamps: int = 0
    bad_keys: int = 0
    errors: list[RecordError] = field(default_factory=list)
    """The first RECORD_ERRORS_MAX violations."""

    def object(self, error: RecordError) -> None:
        if len(self.errors) < RECORD_ERRORS_MAX:
            self.errors.append(error)


def check_steps(block: Block, header: BatchHeader, rules: RecordRules) -> Steps[None]:
    """Check that every record parses, has the next offset, and is not too large; otherwise raise
    DecodeError. Violations of the other rules are added to `rules`.
    """
    count, base_timestamp = header.record_count, header.base_timestamp
    if count > len(block) // RECORD_BYTES_MIN:
        raise DecodeError(f"{count} records in {len(block)} bytes")
    position, index = 0, 0
    delta_min, delta_max, missing_keys = _INT64_MAX, _INT64_MIN, 0
    while True:
        checked = check_records(block, position, index, count - index, _EFFORT_PER_STEP)
        if checked.body_bytes_max > rules.body_bytes_max:
            raise DecodeError(
                f"record of {checked.body_bytes_max} bytes where {rules.body_bytes_max} are allowed"
            )
        position = checked.stop
        index += checked.record_count
        missing_keys += checked.missing_keys
        delta_min = min(delta_min, checked.timestamp_delta_min)
        delta_max = max(delta_max, checked.timestamp_delta_max)
        if index == count:
            break
        yield
    if position != len(block):
        raise DecodeError(f"{count} records end at byte {position} of {len(block)}")
    earliest, latest = base_timestamp + delta_min, base_timestamp + delta_max
    is_timely = rules.timestamps.earliest <= earliest and latest <= rules.timestamps.latest
    wraps = earliest < _INT64_MIN or latest > _INT64_MAX
    if (missing_keys and rules.needs_key) or not is_timely or wraps:
        # Rare: examine every record again, because an error has to name the invalid ones, or
        # because a timestamp is -1 or wraps around.
        yield from _name_violations(block, header, rules)
    else:
        rules.max_timestamp = max(latest, NO_TIMESTAMP)


def _name_violations(block: Block, header: BatchHeader, rules: RecordRules) -> Steps[None]:
    base_timestamp = header.base_timestamp
    earliest, latest = rules.timestamps.earliest, rules.timestamps.latest
    max_timestamp, position = NO_TIMESTAMP, 0
    left_in_step = _SPANS_PER_STEP
    for index in range(header.record_count):
        if left_in_step <= 0:
            left_in_step = _SPANS_PER_STEP
            yield
        span = read_span(block, position)
        left_in_step -= 1 + span.header_count
        position = span.stop
        timestamp = base_timestamp + span.timestamp_delta
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            # Wraps around, as in Kafka and all clients, which add with 64 bits.
            timestamp = (timestamp - _INT64_MIN) % (1 << 64) + _INT64_MIN
        max_timestamp = max(max_timestamp, timestamp)
        if rules.needs_key and span.key_length < 0:
            rules.bad_keys += 1
            rules.object(RecordError(index, _NO_KEY))
        elif not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
            rules.bad_timestamps += 1
            rules.object(rules.timestamps.objection(timestamp, index))
    rules.max_timestamp = max_timestamp
