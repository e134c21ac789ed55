"""Walks from batch to batch through a .log file without trusting any field.

The CRC of a batch covers neither its base offset nor its length nor its leader epoch. These are
checked against the neighbours: each batch starts where the one before it ends, in bytes and in
offsets. Kohort's compaction preserves that (:mod:`kohort.broker.storage.compaction.cleaner`);
Kafka's leaves gaps between batches. A batch after a gap is accepted if its offsets are below those
of the next one. In a log without gaps, a damaged base offset that looks like a gap also moves the
end of its batch beyond the start of the next one, so no single damaged byte goes undetected.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.filesystem import File
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import HEADER_BYTES, BatchHeader, crc_of, read_header
from kohort.protocol.records.crc import crc32c

FEW_BYTES = 4096
"""Bytes read at a time to examine the next few headers."""
MANY_BYTES = 1 << 17
"""Bytes read at a time to examine whole batches."""

_CRC_START = 21


class BatchAt(NamedTuple):
    position: int
    header: BatchHeader

    @property
    def stop(self) -> int:
        return self.position + self.header.size_bytes


def walk_batches(
    file: File,
    start: int,
    stop: int,
    *,
    expected_offset: int | None,
    following_offset: int | None = None,
    check_crc: bool = False,
    chunk_bytes: int = FEW_BYTES,
) -> Iterator[BatchAt]:
    """Yield the batches that fill the file from position `start` to `stop`.

    Raises CorruptBatchError at the first damaged one, and OSError.

    Args:
        expected_offset: base offset of the first batch, or less if compaction has left a gap before
            it; None if unknown.
        following_offset: base offset of the next segment, if there is one.
        check_crc: whether to verify the payload as well, not only headers.
        chunk_bytes: bytes read at a time; larger batches are never in memory as a whole.
    """
    position = chunk_start = start
    chunk = b""
    while position < stop:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = file.pread(min(chunk_bytes, stop - position), position)
            chunk_start, at = position, 0
        header = _check_header(chunk, at, file, position, stop, expected_offset)
        end = position + header.size_bytes
        if (
            expected_offset is not None
            and header.base_offset != expected_offset
            and not (
                header.base_offset > expected_offset
                and _leaves_room(file, end, header.next_offset, following_offset)
            )
        ):
            raise CorruptBatchError(
                f"{file.path}: batch at {position} has base offset {header.base_offset}, "
                f"{expected_offset} was expected"
            )
        if following_offset is not None and header.next_offset > following_offset:
            raise CorruptBatchError(
                f"{file.path}: batch at {position} has offsets {header.base_offset} to"
                f" {header.last_offset}, and the next segment starts at {following_offset}"
            )
        if check_crc:
            if at and end - chunk_start > len(chunk):
                chunk = file.pread(min(chunk_bytes, stop - position), position)
                chunk_start, at = position, 0
            if end - chunk_start <= len(chunk):
                crc = crc_of(chunk, header, at)
            else:
                crc = crc_of_range(file, position, end)
            if crc != header.crc:
                raise CorruptBatchError(
                    f"{file.path}: CRC of the batch at {position} is wrong, offsets"
                    f" {header.base_offset} to {header.last_offset}"
                )
        yield BatchAt(position, header)
        expected_offset = header.next_offset
        position = end


def header_at(file: File, position: int, size: int) -> BatchHeader | None:
    """Return the header at a given position; None if no batch can start there."""
    try:
        return _check_header(file.pread(HEADER_BYTES, position), 0, file, position, size)
    except CorruptBatchError:
        return None


def find_batch(file: File, start: int, stop: int, base_offset: int) -> BatchAt | None:
    """Return the first good batch with exactly this base offset between two positions, or None."""
    wanted = base_offset.to_bytes(8, "big")
    while start < stop:
        chunk = file.pread(min(MANY_BYTES, stop - start), start)
        at = chunk.find(wanted)
        if at < 0:
            start += max(1, len(chunk) - len(wanted) + 1)
            continue
        start += at
        header = header_at(file, start, stop)
        if header is not None:
            end = start + header.size_bytes
            if crc_of_range(file, start, end) == header.crc:
                return BatchAt(start, header)
        start += 1
    return None


def _leaves_room(file: File, end: int, next_offset: int, following_offset: int | None) -> bool:
    """Whether the batch that ends at position `end` has lower offsets than the one after it."""
    behind = file.pread(HEADER_BYTES, end)
    if len(behind) == HEADER_BYTES:
        try:
            return next_offset <= read_header(behind).base_offset
        except DecodeError:
            return False
    return not behind and following_offset is not None and next_offset <= following_offset


def _check_header(
    chunk: bytes, at: int, file: File, position: int, stop: int, expected_offset: int | None = None
) -> BatchHeader:
    try:
        header = read_header(chunk, at)
    except DecodeError as error:
        raise CorruptBatchError(
            f"{file.path}: no batch at {position}, offset {expected_offset}: {error}"
        ) from None
    if (
        position + header.size_bytes > stop
        or header.last_offset_delta < 0
        or header.base_offset < 0
    ):
        raise CorruptBatchError(
            f"{file.path}: batch at {position} of {header.size_bytes} bytes and "
            f"{header.last_offset_delta + 1} offsets from {header.base_offset} cannot be: "
            f"the file ends at {stop}"
        )
    return header


def crc_of_range(file: File, position: int, stop: int) -> int:
    """Return the CRC-32C of the batch between two positions; -1 if the file is shorter."""
    crc = 0
    start = position + _CRC_START
    while start < stop:
        data = file.pread(min(MANY_BYTES, stop - start), start)
        if not data:
            return -1
        crc = crc32c(data, crc)
        start += len(data)
    return crc
