"""Turns bytes fetched from a partition of __consumer_offsets into records of rebalances."""

from collections.abc import Iterator

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import HEADER_BYTES, BatchHeader, crc_matches, read_header
from kohort.protocol.records.record import decode_records
from kohort.watch.core.commits import Reached
from kohort.watch.core.followed import Place
from kohort.watch.core.watcher import Json, Watcher


class OffsetsPartition:
    __slots__ = (
        "_gap_offset",
        "_index",
        "_prefix",
        "_watcher",
        "batch_count",
        "last_ms",
        "next_offset",
    )

    def __init__(
        self, watcher: Watcher, index: int, next_offset: int = 0, prefix: bytes | None = None
    ) -> None:
        """`prefix`: take only records whose keys have these bytes after the record type."""
        self._watcher = watcher
        self._index = index
        self._prefix = prefix
        self._gap_offset = -1
        """Base offset of the last batch that has a gap before or in it; -1 if none."""
        self.next_offset = next_offset
        self.batch_count = 0
        """Number of batches in the last call of `take`."""
        self.last_ms = -1
        """Base or maximum timestamp of the last batch in the last `take`; -1 without batches."""

    def pass_over(self, end_offset: int) -> None:
        self.next_offset = self._gap_offset = end_offset

    def take(self, batches: bytes, end_offset: int) -> Iterator[Json]:
        """Process consecutive batches up to `end_offset`; the last batch may be incomplete. Yield
        the history record of each rebalance that ends in them.

        Raises:
            DecodeError: a batch is damaged.
        """
        reached = Reached(0, self.next_offset)
        while True:
            reached = self._watcher.skip_commits(
                batches, reached, self._index, end_offset, self._prefix
            )
            self.next_offset = reached.offset
            header = _header_at(batches, reached.position)
            if header is None or reached.offset >= end_offset:
                break
            stop = reached.position + header.size_bytes
            yield from self._take_any(header, memoryview(batches)[reached.position : stop])
            self.next_offset = max(reached.offset, header.next_offset)
            reached = Reached(stop, self.next_offset, reached.batch_count + 1, header.max_timestamp)
        self.batch_count, self.last_ms = reached.batch_count, reached.last_ms

    def _take_any(self, header: BatchHeader, batch: memoryview) -> Iterator[Json]:
        if not crc_matches(batch, header):
            partition = f"__consumer_offsets-{self._index}"
            raise DecodeError(f"{partition}: the batch at {header.base_offset} is damaged")
        is_whole = header.record_count == header.last_offset_delta + 1
        if header.base_offset > self.next_offset or not is_whole:
            self._gap_offset = header.base_offset
        if header.is_control:
            return
        place = Place(
            self._index,
            header.base_offset,
            header.partition_leader_epoch,
            header.is_transactional,
            self._gap_offset,
        )
        yield from self._watcher.take(decode_records(batch, header), place, self._prefix)


def _header_at(batches: bytes, start: int) -> BatchHeader | None:
    """Return the header of a batch; None if the batch is incomplete."""
    if len(batches) - start < HEADER_BYTES:
        return None
    header = read_header(batches, start)
    return header if start + header.size_bytes <= len(batches) else None
