"""Ranges of files that are sent to a socket without passing through this process's memory.

A range keeps the file open, so that its bytes stay available whatever happens to the name: a
segment that is deleted, or replaced by a compacted one, persists for clients that are still being
sent parts of it. Nothing below the end of a log is ever overwritten or truncated while the broker
runs. If another program has shortened the file, sending the missing bytes raises OSError.

`is_cached` checks whether bytes of a file are in the page cache by Linux's cachestat(2), which
Python lacks. For a megabyte a call takes 2 to 15 us, copying the data 150 us. Kernels before 6.5
lack the call, some sandboxes forbid it, and other systems have nothing like it; then nothing counts
as cached.
"""

import ctypes
import os
import resource
import sys
import threading
from collections.abc import Callable
from typing import Protocol

_CACHESTAT: int | None = 451 if sys.platform == "linux" else None
"""The number of the cachestat system call on all architectures; None except on Linux."""
_PAGE_BYTES = resource.getpagesize()


class _CachestatArguments(threading.local):
    """A thread's arguments and result of cachestat, reused: creating them takes longer than the
    call.
    """

    def __init__(self) -> None:
        self.asked = (ctypes.c_uint64 * 2)()
        """The range to examine: its first byte and its length."""
        self.found = (ctypes.c_uint64 * 5)()
        """The result: numbers of pages cached, dirty, being written, evicted, recently evicted."""
        self.asked_at = ctypes.addressof(self.asked)
        self.found_at = ctypes.addressof(self.found)


_ARGUMENTS = _CachestatArguments()

# PyDLL keeps the interpreter's lock; reacquiring it would take longer than the call.
_ask = ctypes.PyDLL(None).syscall
_ask.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_uint,
)
_ask.restype = ctypes.c_long


def is_cached(descriptor_number: int, start: int, stop: int) -> bool:
    """Whether every byte of an open file from `start` up to (not including) `stop` is in the page
    cache.

    The bytes may be evicted a moment later.
    """
    if stop <= start:
        return True
    if _CACHESTAT is None:
        return False
    question = _ARGUMENTS
    question.asked[:] = [start, stop - start]
    if _ask(_CACHESTAT, descriptor_number, question.asked_at, question.found_at, 0) != 0:
        return False
    page_count = (stop - 1) // _PAGE_BYTES - start // _PAGE_BYTES + 1
    cached: int = question.found[0]
    return cached >= page_count


class Descriptor(Protocol):
    """An open file descriptor, closed with its last reference."""

    @property
    def number(self) -> int:
        """The operating system's descriptor number."""
        ...


class FileRange:
    """The part of a file range that is not sent yet. Methods raise OSError."""

    __slots__ = ("_descriptor", "_on_gone", "_position", "_stop")

    def __init__(
        self, descriptor: Descriptor, start: int, stop: int, on_gone: Callable[[], None]
    ) -> None:
        """`on_gone` is called, in any thread, when the last reference to this object is dropped."""
        self._descriptor = descriptor
        self._position = start
        self._stop = stop
        self._on_gone = on_gone

    def __del__(self) -> None:
        self._on_gone()

    def __len__(self) -> int:
        return self._stop - self._position

    def send_to(self, socket_number: int) -> int:
        """Send as many bytes as the (non-blocking) socket accepts now; return their number.

        Raises BlockingIOError if it accepts none. Waits for the disk if `is_cached` is False.
        """
        count = len(self)
        sent = os.sendfile(socket_number, self._descriptor.number, self._position, count)
        self._advance(sent)
        return sent

    def take(self, byte_count: int) -> bytes:
        """Read the next `byte_count` bytes, or as many as are left. Waits for the disk as `send_to`
        does.
        """
        count = min(byte_count, len(self))
        data = os.pread(self._descriptor.number, count, self._position)
        self._advance(len(data))
        return data

    def is_cached(self) -> bool:
        """Whether the rest of the range is in the page cache, so that sending does not wait for the
        disk.
        """
        return is_cached(self._descriptor.number, self._position, self._stop)

    def _advance(self, byte_count: int) -> None:
        if byte_count == 0:
            raise OSError(f"a file ends at or before {self._position} instead of at {self._stop}")
        self._position += byte_count
