"""Ranges of files that are sent to a socket without passing through this process's memory.

A range keeps the file open, so that its bytes stay available whatever happens to the name: a
segment that is deleted, or replaced by a compacted one, persists for clients that are still being
sent parts of it. Nothing below the end of a log is ever overwritten or truncated while the broker
runs. A file that another program has shortened is detected: a range never gives other bytes, or
fewer.
"""

import os
from collections.abc import Callable
from typing import Protocol

from kohort.broker.storage.page_cache import is_cached


class Descriptor(Protocol):
    """An open file descriptor, closed with its last reference."""

    @property
    def number(self) -> int:
        """The operating system's descriptor number."""
        ...


class FileRange:
    """The rest of a file range that is being sent. Methods raise OSError."""

    __slots__ = ("_descriptor", "_on_gone", "_position", "_stop")

    def __init__(
        self, descriptor: Descriptor, start: int, stop: int, on_gone: Callable[[], None]
    ) -> None:
        """`on_gone` is called when the last reference is dropped, in any thread."""
        self._descriptor = descriptor
        self._position = start
        self._stop = stop
        self._on_gone = on_gone

    def __del__(self) -> None:
        self._on_gone()

    def __len__(self) -> int:
        return self._stop - self._position

    def send_to(self, socket_number: int) -> int:
        """Send what the (non-blocking) socket takes now; return the number of bytes.

        Raises BlockingIOError if that is none. Waits for the disk if `is_cached` is False.
        """
        count = len(self)
        sent = os.sendfile(socket_number, self._descriptor.number, self._position, count)
        self._advance(sent)
        return sent

    def take(self, byte_count: int) -> bytes:
        """Read up to `byte_count` bytes from the front. Waits for the disk as `send_to` does."""
        count = min(byte_count, len(self))
        data = os.pread(self._descriptor.number, count, self._position)
        self._advance(len(data))
        return data

    def is_cached(self) -> bool:
        """Whether the rest is in the page cache, so that sending does not wait for the disk."""
        return is_cached(self._descriptor.number, self._position, self._stop)

    def _advance(self, byte_count: int) -> None:
        if byte_count == 0:
            raise OSError(f"a file ends at or before {self._position} instead of at {self._stop}")
        self._position += byte_count
