"""Flushes a log to disk while it is being appended to.

One flush at a time; it runs in any thread. What it covers is determined before the first fsync:
batches appended meanwhile are left to the next one. A failed fsync is never retried: the kernel
marks the pages as clean after reporting the error once, so the next fsync would succeed without
having written them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.segment.segment import LogSegment


class LogFlusher:
    """Tracks what of a log is on disk. `note_*` may be called while a flush runs."""

    __slots__ = ("_directories", "_files", "_lock", "_paths", "flushed_offset")

    def __init__(self, files: FileSystem, flushed_offset: int) -> None:
        self.flushed_offset = flushed_offset
        """Every batch below this offset is on disk."""
        self._files = files
        self._lock = threading.Lock()
        # Ordered, so that a flush is reproducible.
        self._paths: dict[str, None] = {}
        self._directories: dict[str, None] = {}

    def note_name(self, directory: str) -> None:
        """Record that a relevant file was created in, renamed in or removed from a directory."""
        self._directories[directory] = None

    def note_file(self, directory: str, name: str) -> None:
        """Record that a file beside the log was replaced, which must be as durable as the batches
        after it.
        """
        self._paths[f"{directory}/{name}"] = None
        self._directories[directory] = None

    def flush(
        self, segments: Sequence[LogSegment], end_offset: int, *, with_indexes: bool = False
    ) -> None:
        """Flush the segments to disk. Raises OSError: the log must then be abandoned.

        Args:
            end_offset: read before `segments`, so that they contain all batches below it.
            with_indexes: whether to include those of the active segment.
        """
        with self._lock:
            for path in self._take(self._paths):
                self.sync_file(path)
            # The oldest first: then a power failure leaves no gap.
            for segment in segments[_durable_count(segments) :]:
                self._sync(segment, with_indexes=with_indexes)
            for directory in self._take(self._directories):
                self._files.sync_directory(directory)
            self.flushed_offset = max(self.flushed_offset, end_offset)

    def sync_file(self, path: str) -> None:
        """Flush a file to disk, if it exists. Raises OSError."""
        file = self._files.file(path)
        try:
            file.sync()
        except FileNotFoundError:
            return  # A snapshot whose segment has been deleted already.
        finally:
            file.close()

    @staticmethod
    def _sync(segment: LogSegment, *, with_indexes: bool) -> None:
        try:
            segment.sync(with_indexes=with_indexes)
        except FileNotFoundError:
            if not segment.is_deleted:  # Deleted by retention, since the segments were listed.
                raise

    @staticmethod
    def _take(noted: dict[str, None]) -> list[str]:
        """Take what was recorded so far; later records are left to the next flush."""
        taken = []
        while noted:
            taken.append(noted.popitem()[0])
        return taken


def _durable_count(segments: Sequence[LogSegment]) -> int:
    """Return how many segments from the front need no flush: all up to the last one that was
    synced.
    """
    for count in range(len(segments), 0, -1):
        if segments[count - 1].is_synced and segments[count - 1].is_sealed:
            return count
    return 0
