"""Which bytes of a file are in memory: Linux's cachestat(2), for which Python has no name.

A question costs some 5 us for a megabyte, a copy of it 150. Kernels before 6.5 lack the call, and
some sandboxes forbid it, and other systems have nothing like it; then nothing counts as cached.
"""

from __future__ import annotations

import ctypes
import resource
import sys

_CACHESTAT: int | None = 451 if sys.platform == "linux" else None
"""Newer system calls have the same number on every architecture, and another meaning elsewhere."""
_PAGE_BYTES = resource.getpagesize()
_Range = ctypes.c_uint64 * 2
"""From which byte, how many."""
_Found = ctypes.c_uint64 * 5
"""Pages that are cached, dirty, being written, evicted, and evicted lately."""

# PyDLL keeps the interpreter's lock, which would take longer to get back than the call lasts.
_libc = ctypes.PyDLL(None)
_libc.syscall.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.POINTER(_Range),
    ctypes.POINTER(_Found),
    ctypes.c_uint,
)
_libc.syscall.restype = ctypes.c_long


def is_cached(descriptor_number: int, start: int, stop: int) -> bool:
    """Whether every byte of an open file from `start` up to (not including) `stop` is in memory.

    It may be gone again a moment later.
    """
    if stop <= start:
        return True
    if _CACHESTAT is None:
        return False
    found = _Found()
    asked = _Range(start, stop - start)
    if _libc.syscall(_CACHESTAT, descriptor_number, asked, found, 0) != 0:
        return False
    page_count = (stop - 1) // _PAGE_BYTES - start // _PAGE_BYTES + 1
    cached: int = found[0]
    return cached >= page_count
