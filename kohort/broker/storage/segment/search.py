"""Finds an offset in a segment, with indexes that may be damaged.

An index entry is a hint that is compared with the batch it points to. If it does not match, the
entries before it are tried; if none of them matches, the index is rebuilt from the batches. So a
damaged index costs time, but never gives a wrong result.
"""

import logging

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.layout import INDEX_SUFFIX
from kohort.broker.storage.segment.batch_walk import BatchAt, header_at
from kohort.broker.storage.segment.indexes import IndexEntry
from kohort.broker.storage.segment.segment import LogSegment
from kohort.protocol.records.batch import BatchHeader

logger = logging.getLogger(__name__)

UNINDEXED_BYTES_MAX = 64 << 20
"""A longer walk from an index entry to the wanted batch means that entries are missing."""
REBUILD_INTERVAL_BYTES = 4096
ATTEMPTS = 4
"""Entries tried, backwards, before the whole index is considered damaged."""


def locate(segment: LogSegment, offset: int) -> tuple[int, int] | None:
    """Return (position, base offset) of the first batch that ends at or after an offset.

    None if all batches end below the offset. The base offset is verified: it must follow the
    batches before it. The payload is not examined. Raises OSError, and CorruptBatchError if a
    batch on the way is damaged.
    """
    hinted = segment.hinted(offset)
    if hinted is not None:
        return (hinted, offset) if hinted < segment.size_bytes else None
    start, expected = _trusted_start(segment, offset)
    try:
        for position, header in segment.walk(start, expected):
            if header.last_offset >= offset:
                return position, header.base_offset
            if position - start > UNINDEXED_BYTES_MAX and not segment.is_index_rebuilt:
                rebuild_index(segment)
                return locate(segment, offset)
    except CorruptBatchError:
        # The next index entry may point to the batch that contains the offset.
        number = segment.index.find_offset(offset) + 1
        behind = header_of_entry(segment, number) if number < len(segment.index) else None
        if behind is None or behind.base_offset > offset:
            raise
        return segment.index[number].position, behind.base_offset
    return None


def header_of_entry(segment: LogSegment, number: int) -> BatchHeader | None:
    """Return the header of the batch at an index entry; None if it does not match the entry."""
    try:
        entry = segment.index[number]
    except OSError:
        return None
    header = header_at(segment.log, entry.position, segment.size_bytes)
    return header if header and header.last_offset == entry.last_offset else None


def rebuild_index(segment: LogSegment) -> None:
    """Rebuild the .index file from the batches, skipping damaged ones where possible."""
    logger.warning("%s does not match the log and is rebuilt", segment.path(INDEX_SUFFIX))
    segment.is_index_rebuilt = True
    entries: list[IndexEntry] = []
    position, base_offset = 0, segment.base_offset
    while True:
        indexed = position
        try:
            for batch in segment.walk(position, base_offset):
                position = batch.position
                if position - indexed > REBUILD_INTERVAL_BYTES:
                    entries.append(IndexEntry(batch.header.last_offset, position))
                    indexed = position
            break
        except CorruptBatchError as error:
            logger.warning("%s", error)
            start = next_indexed_batch(segment, position)
            if start is None:
                break
            position, base_offset = start.position, start.header.base_offset
            entries.append(IndexEntry(start.header.last_offset, position))
    try:
        segment.index.replace_all(entries)
    except OSError as error:
        logger.warning("%s cannot be rebuilt: %s", segment.path(INDEX_SUFFIX), error)


def next_indexed_batch(segment: LogSegment, position: int) -> BatchAt | None:
    """Return the first indexed batch after a position, to continue there after damage."""
    for number in range(len(segment.index)):
        try:
            entry = segment.index[number]
        except OSError:
            return None
        if entry.position > position:
            header = header_of_entry(segment, number)
            if header is not None:
                return BatchAt(entry.position, header)
    return None


def _trusted_start(segment: LogSegment, offset: int) -> tuple[int, int]:
    """Return (position, base offset) of some batch at or before the one that contains `offset`."""
    number = segment.index.find_offset(offset)
    for attempt in range(number, max(-1, number - ATTEMPTS), -1):
        header = header_of_entry(segment, attempt)
        if header is not None and header.last_offset <= offset:
            return segment.index[attempt].position, header.base_offset
    if number >= 0 and not segment.is_index_rebuilt:
        rebuild_index(segment)
        return _trusted_start(segment, offset)
    return 0, segment.base_offset
