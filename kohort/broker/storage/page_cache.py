"""Checks whether bytes of a file are in the page cache: Linux's cachestat(2), which Python lacks.

A call takes 2 to 15 us for a megabyte, copying it 150. Kernels before 6.5 lack the call, some
sandboxes forbid it, and other systems have nothing like it; then nothing counts as cached.
"""

import ctypes
import resource
import sys
import threading

_CACHESTAT: int | None = 451 if sys.platform == "linux" else None
"""Recent system calls have the same number on every architecture, but not on other systems."""
_PAGE_BYTES = resource.getpagesize()


class _Question(threading.local):
    """The arguments of a call, reused by each thread, because creating them takes longer than the
    call.
    """

    def __init__(self) -> None:
        self.asked = (ctypes.c_uint64 * 2)()
        """The range to examine: its first byte and its length."""
        self.found = (ctypes.c_uint64 * 5)()
        """Pages that are cached, dirty, being written, evicted, and recently evicted."""
        self.asked_at = ctypes.addressof(self.asked)
        self.found_at = ctypes.addressof(self.found)


_QUESTION = _Question()

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

    It may be evicted a moment later.
    """
    if stop <= start:
        return True
    if _CACHESTAT is None:
        return False
    question = _QUESTION
    question.asked[:] = [start, stop - start]
    if _ask(_CACHESTAT, descriptor_number, question.asked_at, question.found_at, 0) != 0:
        return False
    page_count = (stop - 1) // _PAGE_BYTES - start // _PAGE_BYTES + 1
    cached: int = question.found[0]
    return cached >= page_count
