"""Forcing a log to disk while it is being appended to.

One flush at a time; it runs on any thread. What it covers is decided before the first fsync:
batches appended during it are for the next one. An fsync that failed is never tried again: the
kernel takes the pages for clean after reporting the error once, so the next one would succeed
without having written them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.segment.segment import LogSegment


class LogFlusher:
    """What of a log is on the disk. `note_*` may be called while a flush runs."""

    __slots__ = ("_directories", "_files", "_lock", "_paths", "flushed_offset")

    def __init__(self, files: FileSystem, flushed_offset: int) -> None:
        self.flushed_offset = flushed_offset
        """Every batch below is on the disk."""
        self._files = files
        self._lock = threading.Lock()
        # In order: what a flush does to a disk is the same each time.
        self._paths: dict[str, None] = {}
        self._directories: dict[str, None] = {}

    def note_name(self, directory: str) -> None:
        """A file that matters was created in, renamed in or removed from a directory."""
        self._directories[directory] = None

    def note_file(self, directory: str, name: str) -> None:
        """A file beside the log was replaced that must be as durable as the batches behind it."""
        self._paths[f"{directory}/{name}"] = None
        self._directories[directory] = None

    def flush(
        self, segments: Sequence[LogSegment], end_offset: int, *, with_indexes: bool = False
    ) -> None:
        """Force the segments to disk. Raises OSError: the log is then to be given up.

        Args:
            end_offset: read before `segments`, so that all batches below it are in them.
            with_indexes: those of the active segment as well.
        """
        with self._lock:
            for path in self._take(self._paths):
                self.sync_file(path)
            # The oldest first: what a power loss leaves of them then has no gap.
            for segment in segments[_durable_count(segments) :]:
                self._sync(segment, with_indexes=with_indexes)
            for directory in self._take(self._directories):
                self._files.sync_directory(directory)
            self.flushed_offset = max(self.flushed_offset, end_offset)

    def sync_file(self, path: str) -> None:
        """Force a file to disk, if it is there. Raises OSError."""
        file = self._files.file(path)
        try:
            file.sync()
        except FileNotFoundError:
            return  # A snapshot whose segment is deleted already.
        finally:
            file.close()

    @staticmethod
    def _sync(segment: LogSegment, *, with_indexes: bool) -> None:
        try:
            segment.sync(with_indexes=with_indexes)
        except FileNotFoundError:
            if not segment.is_deleted:  # By retention, since the segments were listed.
                raise

    @staticmethod
    def _take(noted: dict[str, None]) -> list[str]:
        """What was noted so far; later notes are for the next flush."""
        taken = []
        while noted:
            taken.append(noted.popitem()[0])
        return taken


def _durable_count(segments: Sequence[LogSegment]) -> int:
    """How many segments from the front need no flush: all up to the newest that has had its own."""
    for count in range(len(segments), 0, -1):
        if segments[count - 1].is_synced and segments[count - 1].is_sealed:
            return count
    return 0
