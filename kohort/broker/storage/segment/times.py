"""Timestamps of a segment: its maximum, and the first record at or after a time.

The time index is trusted only where an entry matches the batch it points to; otherwise the headers
of the whole segment are scanned once, and a complete index is rebuilt. A maximum that is too low
would make retention delete a segment too early. So the last entry, which should be the maximum, is
also compared with all batches after the one it points to; there are none if timestamps ascend.
"""

import logging
from collections.abc import Iterator

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.layout import TIME_INDEX_SUFFIX
from kohort.broker.storage.segment.batch_walk import BatchAt
from kohort.broker.storage.segment.indexes import TimestampOffset
from kohort.broker.storage.segment.search import REBUILD_INTERVAL_BYTES, locate
from kohort.broker.storage.segment.segment import LogSegment
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import NO_TIMESTAMP, TimestampType, crc_matches
from kohort.protocol.records.record import inflate, iter_spans

logger = logging.getLogger(__name__)

DECODED_BYTES_MAX = 1 << 20
"""Larger batches are not decoded to find the timestamp of one record."""

_CHUNK_BYTES = 1 << 16

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def load_max_timestamp(segment: LogSegment) -> int | None:
    """Return the latest timestamp in the segment, and store it in `segment.max_timestamp`;
    NO_TIMESTAMP if there is none.

    None if damage hides the timestamp: then the segment must not be considered old. Raises OSError.
    """
    if segment.max_timestamp is None:
        last = _last_entry(segment)
        batch = None if last is None else batch_of_entry(segment, last)
        if last is None or batch is None:
            # Without an entry the batches probably have no timestamps. If an entry does not match,
            # the index or the batches may be damaged, so CRCs are checked.
            _scan_timestamps(segment, check_crc=last is not None)
        elif _is_latest(segment, batch):
            segment.max_timestamp, segment.max_timestamp_offset = last
        else:
            logger.warning("%s lacks its last entries", segment.path(TIME_INDEX_SUFFIX))
            _scan_timestamps(segment, check_crc=False)
    return segment.max_timestamp


def _last_entry(segment: LogSegment) -> TimestampOffset | None:
    try:
        return segment.time_index.last()
    except OSError as error:
        # The file has become shorter since the log was opened.
        logger.warning("%s", error)
        return None


def _is_latest(segment: LogSegment, batch: BatchAt) -> bool:
    """Whether `batch`, to which the last index entry points, has the latest timestamp of all
    batches from it to the end of the segment or the first damaged batch.
    """
    try:
        for _, header in segment.walk(batch.position, batch.header.base_offset):
            if header.max_timestamp > batch.header.max_timestamp:
                return False
    except CorruptBatchError as error:
        logger.warning("%s", error)
    return True


def load_first_timestamp(segment: LogSegment) -> int:
    """Return the first batch's max timestamp; NO_TIMESTAMP without a valid first batch."""
    if segment.first_timestamp is None:
        segment.first_timestamp = NO_TIMESTAMP
        try:
            for _, header in segment.walk(0, segment.base_offset):
                segment.first_timestamp = header.max_timestamp
                break
        except CorruptBatchError as error:
            logger.warning("%s", error)
    return segment.first_timestamp


def find_timestamp(
    segment: LogSegment, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """Return the first record at or after `start_offset` whose timestamp is at least `timestamp`.

    None if there is none. The batch that contains the record is decoded, so the result is exact.
    Raises OSError, and CorruptBatchError if a batch up to the result is damaged.
    """
    number = segment.time_index.find_timestamp(timestamp)
    offset = max(start_offset, segment.base_offset)
    if number >= 0:
        entry = segment.time_index[number]
        if batch_of_entry(segment, entry):
            offset = max(offset, entry.offset)
    found = locate(segment, offset)
    if found is None:
        return None
    # CRCs are checked, because a damaged maximum timestamp in a header could hide the batch.
    for batch in segment.walk(*found, check_crc=True, chunk_bytes=_CHUNK_BYTES):
        if batch.header.max_timestamp >= timestamp and batch.header.last_offset >= start_offset:
            for each in _timestamps(segment, batch):
                if each.timestamp >= timestamp and each.offset >= start_offset:
                    return each
    return None


def find_max_timestamp(segment: LogSegment) -> TimestampOffset | None:
    """Return the first record with the segment's latest timestamp; None if that is unknown."""
    latest = load_max_timestamp(segment)
    if latest is None or latest == NO_TIMESTAMP:
        return None
    found = locate(segment, segment.max_timestamp_offset)
    if found is None:
        return None
    for batch in segment.walk(*found):
        for each in _timestamps(segment, batch):
            if each.timestamp == latest:
                return each
    return None


def timestamp_at(segment: LogSegment, offset: int) -> int | None:
    """Return the timestamp of the first record at or after `offset`: NO_TIMESTAMP if it has none;
    None if the segment has no such record.

    A batch longer than `DECODED_BYTES_MAX` is not decoded: the timestamp of its first record is
    returned. Raises OSError, and CorruptBatchError if the batch is damaged.
    """
    found = locate(segment, offset)
    if found is None:
        return None
    batch = next(segment.walk(*found))
    header = batch.header
    first = header.base_timestamp
    is_same = (
        header.timestamp_type is TimestampType.LOG_APPEND_TIME or first == header.max_timestamp
    )
    if is_same or header.size_bytes > DECODED_BYTES_MAX:
        return header.max_timestamp if is_same else first
    latest = NO_TIMESTAMP
    for each in _timestamps(segment, batch):
        latest = each.timestamp
        if each.offset >= offset:
            break
    # Compaction may have removed the last records of the batch.
    return latest


def batch_of_entry(segment: LogSegment, entry: TimestampOffset) -> BatchAt | None:
    """Return the batch that an entry of the time index points to; None if there is none."""
    try:
        found = locate(segment, entry.offset)
        if found is not None:
            batch = next(segment.walk(*found))
            if (batch.header.max_timestamp, batch.header.last_offset) == entry:
                return batch
    except CorruptBatchError as error:
        logger.warning("%s", error)
    return None


def _timestamps(segment: LogSegment, batch: BatchAt) -> Iterator[TimestampOffset]:
    """Yield timestamp and offset of each record of a batch."""
    position, header = batch
    data = segment.log.pread(header.size_bytes, position)
    try:
        if not crc_matches(data, header):
            raise DecodeError("its CRC is wrong")
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            for offset in range(header.base_offset, header.next_offset):
                yield TimestampOffset(header.max_timestamp, offset)
        else:
            # Iterate over spans: a search needs neither keys nor values, and often ends early.
            for span in iter_spans(inflate(data, header), header.record_count):
                timestamp = header.base_timestamp + span.timestamp_delta
                if not _INT64_MIN <= timestamp <= _INT64_MAX:
                    # A producer may have sent a delta that overflows. Clients add with 64 bits, so
                    # they see the wrapped timestamp, too.
                    timestamp = (timestamp - _INT64_MIN) % (1 << 64) + _INT64_MIN
                yield TimestampOffset(timestamp, header.base_offset + span.offset_delta)
    except DecodeError as error:
        raise CorruptBatchError(f"{segment!r}: batch at {position}: {error}") from None


def _scan_timestamps(segment: LogSegment, *, check_crc: bool) -> None:
    """Find the maximum timestamp; rebuild the time index, unless of an active segment's twin."""
    latest = TimestampOffset(NO_TIMESTAMP, -1)
    entries: list[TimestampOffset] = []
    indexed = 0
    try:
        batches = segment.walk(
            0, segment.base_offset, check_crc=check_crc, chunk_bytes=_CHUNK_BYTES
        )
        for position, header in batches:
            if header.max_timestamp > latest.timestamp:
                latest = TimestampOffset(header.max_timestamp, header.last_offset)
            if position - indexed > REBUILD_INTERVAL_BYTES and latest.timestamp >= 0:
                if not entries or latest.timestamp > entries[-1].timestamp:
                    entries.append(latest)
                indexed = position
    except CorruptBatchError as error:
        logger.warning("%s; the segment's latest timestamp remains unknown", error)
        return
    segment.max_timestamp, segment.max_timestamp_offset = latest
    if latest.timestamp >= 0 and (not entries or latest.timestamp > entries[-1].timestamp):
        entries.append(latest)
    if segment.is_twin and not segment.is_sealed:
        return
    if entries or len(segment.time_index):
        path = segment.path(TIME_INDEX_SUFFIX)
        try:
            segment.time_index.replace_all(entries)
            logger.warning("%s did not match the log and is rebuilt", path)
        except OSError as error:
            logger.warning("%s cannot be rebuilt: %s", path, error)
