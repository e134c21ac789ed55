"""Bytes of a file that go to a socket without passing through our memory.

A range holds the file open, so that it stays the same bytes whatever becomes of the name: a segment
that is deleted, or replaced by a compacted one, lives on for clients that are still being sent
parts of it. Nothing below the end of a log is ever written to or cut off while the broker runs. A
file that another program has shortened is noticed: a range never gives other bytes, or fewer.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Protocol

from kohort.broker.storage.page_cache import is_cached

_NOT_AT_ONCE = frozenset({errno.EAGAIN, errno.EOPNOTSUPP})
"""Not in memory; or the file system cannot tell."""


class Descriptor(Protocol):
    """An open file, closed with its last reference."""

    @property
    def number(self) -> int:
        """The operating system's."""
        ...


class FileRange:
    """What is left to be sent of a range of a file. Methods raise OSError."""

    __slots__ = ("_descriptor", "_on_gone", "_position", "_stop")

    def __init__(
        self, descriptor: Descriptor, start: int, stop: int, on_gone: Callable[[], None]
    ) -> None:
        """`on_gone` is called when the last reference is given up, in any thread."""
        self._descriptor = descriptor
        self._position = start
        self._stop = stop
        self._on_gone = on_gone

    def __del__(self) -> None:
        self._on_gone()

    def __len__(self) -> int:
        return self._stop - self._position

    def send_to(self, socket_number: int) -> int:
        """Send what the (non-blocking) socket takes now; returns the bytes it took.

        BlockingIOError if that is none. Waits for a disk where `is_cached` is False.
        """
        count = len(self)
        sent = os.sendfile(socket_number, self._descriptor.number, self._position, count)
        self._advance(sent)
        return sent

    def take(self, byte_count: int) -> bytes:
        """Read up to so many bytes off the front. Waits for a disk as `send_to`."""
        count = min(byte_count, len(self))
        data = os.pread(self._descriptor.number, count, self._position)
        self._advance(len(data))
        return data

    def take_cached(self, byte_count: int) -> bytes:
        """Read up to so many bytes off the front if they are in memory; else none, or fewer."""
        data = bytearray(min(byte_count, len(self)))
        try:
            count = os.preadv(self._descriptor.number, [data], self._position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _NOT_AT_ONCE:
                return b""
            raise
        self._advance(count)
        return bytes(data[:count])

    def is_cached(self) -> bool:
        """Whether what is left is in memory, so that sending waits for no disk."""
        return is_cached(self._descriptor.number, self._position, self._stop)

    def _advance(self, byte_count: int) -> None:
        if byte_count == 0:
            raise OSError(f"a file ends at or before {self._position} instead of at {self._stop}")
        self._position += byte_count
