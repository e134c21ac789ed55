"""The segment that compaction writes, under *.cleaned names until it is put in place."""

import logging

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.filesystem import FileSystem, write_fully
from kohort.broker.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kohort.broker.storage.segment.indexes import OffsetIndex, TimeIndex, TimestampOffset
from kohort.broker.storage.segment.segment import POSITION_MAX, LogSegment
from kohort.broker.storage.segment.swap import (
    cleaned_path,
    decide_swap,
    discard_cleaned,
    finish_swap,
)
from kohort.broker.storage.segment.transaction_index import ENTRY_BYTES as ABORTED_ENTRY_BYTES
from kohort.broker.storage.segment.transaction_index import encode_entries
from kohort.protocol.records.batch import NO_TIMESTAMP, read_header

logger = logging.getLogger(__name__)

BUFFER_BYTES = 1 << 16


class CleanedSegment:
    """A segment being written by one thread. All methods but `discard` may raise OSError."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        base_offset: int,
        interval: int,
        *,
        replaces_aborted: bool = False,
    ) -> None:
        """`interval`: bytes between two index entries.

        Args:
            replaces_aborted: whether the old segments have an index of aborted transactions. Even
                an empty index replaces it, because the old one may list removed markers.
        """
        self.base_offset = base_offset
        self.size_bytes = 0
        self._files = files
        self._directory = directory
        self._interval = interval
        discard_cleaned(files, directory, base_offset)
        self._log = files.create(cleaned_path(directory, base_offset, LOG_SUFFIX))
        self._index = OffsetIndex(
            files, cleaned_path(directory, base_offset, INDEX_SUFFIX), base_offset, None
        )
        self._time_index = TimeIndex(
            files, cleaned_path(directory, base_offset, TIME_INDEX_SUFFIX), base_offset, None
        )
        self._replaces_aborted = replaces_aborted
        self._aborted: list[AbortedTransaction] = []
        self._latest = TimestampOffset(NO_TIMESTAMP, -1)
        self._unindexed_bytes = 0
        self._buffer = bytearray()

    def append(self, batch: bytes) -> None:
        """Append a batch unchanged, including its offsets."""
        header = read_header(batch)
        if self.size_bytes + len(batch) > POSITION_MAX:
            raise OSError(f"{self._log.path} exceeds the maximum size of a segment")
        if header.max_timestamp > self._latest.timestamp:
            self._latest = TimestampOffset(header.max_timestamp, header.last_offset)
        if self._unindexed_bytes > self._interval:
            self._index.append(header.last_offset, self.size_bytes)
            self._time_index.append_if_later(*self._latest)
            self._unindexed_bytes = 0
        self._unindexed_bytes += len(batch)
        self.size_bytes += len(batch)
        self._buffer += batch
        if len(self._buffer) >= BUFFER_BYTES:
            self._write_out()

    def note_aborted(self, entry: AbortedTransaction) -> None:
        """Append to the index of aborted transactions. Call this in the order of the markers."""
        self._aborted.append(entry)

    def finish(self) -> None:
        """Complete the files and flush them to disk; to be called before `decide`."""
        self._write_out()
        if self._aborted or self._replaces_aborted:
            # An index without entries replaces the old one, and is then removed.
            path = cleaned_path(self._directory, self.base_offset, TRANSACTION_INDEX_SUFFIX)
            file = self._files.create(path)
            try:
                write_fully(file, [encode_entries(self._aborted)], 0)
                file.sync()
            finally:
                file.close()
        self._time_index.append_if_later(*self._latest)
        for index in (self._index, self._time_index):
            index.save()
            index.sync()
            index.close()
        self._log.sync()
        self._log.close()

    def decide(self) -> None:
        """Commit the replacement: after a crash, the next start completes it. If this raises
        OSError, the replacement is not committed.
        """
        decide_swap(self._files, self._directory, self.base_offset)

    def discard(self) -> bool:
        """Remove the files, unless `put_in_place` renamed them; return False if that failed."""
        self._log.close()
        self._index.close()
        self._time_index.close()
        try:
            discard_cleaned(self._files, self._directory, self.base_offset)
        except OSError as error:
            logger.warning("%s cannot be removed: %s", self._log.path, error)
            return False
        return True

    def put_in_place(self) -> LogSegment:
        """Give the files their final names, after the old segments' files have been renamed."""
        finish_swap(self._files, self._directory, self.base_offset)
        sizes = {
            LOG_SUFFIX: self.size_bytes,
            INDEX_SUFFIX: len(self._index) * OffsetIndex.entry.size,
            TIME_INDEX_SUFFIX: len(self._time_index) * TimeIndex.entry.size,
        }
        if self._aborted:
            sizes[TRANSACTION_INDEX_SUFFIX] = len(self._aborted) * ABORTED_ENTRY_BYTES
        segment = LogSegment(self._files, self._directory, self.base_offset, sizes)
        segment.first_crc(reads=True)
        if segment.aborted is not None:
            segment.aborted.accept()
        if self._replaces_aborted and not self._aborted:
            self._remove_empty_index(segment.path(TRANSACTION_INDEX_SUFFIX))
        segment.max_timestamp, segment.max_timestamp_offset = self._latest
        segment.note_verified(0, self.size_bytes)
        segment.is_sealed = segment.is_synced = True
        return segment

    def _remove_empty_index(self, path: str) -> None:
        try:
            self._files.remove(path)
        except OSError as error:
            # The next start finds the index empty and reads the batches instead.
            logger.warning("%s cannot be removed: %s", path, error)

    def _write_out(self) -> None:
        write_fully(self._log, [self._buffer], self.size_bytes - len(self._buffer))
        self._buffer.clear()
