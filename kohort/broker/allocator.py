"""Have the C library give memory back after a peer has sent something large.

glibc serves large blocks from mappings of their own, which go back to the system when they are
freed. But it learns from each one that is freed: the next of that size comes from the heap, and the
heap's end is not given back until twice as much is free there. After a few requests of 30 MB, 64 MB
stay with the process for good, whatever it does. Fixed limits switch that learning off.
"""

import contextlib
import ctypes
import logging
import os
import sys
from typing import Final

logger = logging.getLogger(__name__)

M_MXFAST: Final = 1
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""From glibc's malloc.h."""

LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Above an ordinary batch: a mapping for each of those would cost more than the copy into it."""


def limit_retained_memory() -> None:
    """For the whole process, from now on; other C libraries than glibc are left as they are."""
    for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
        _set_option(option, LIMIT_BYTES)


def _set_option(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):
        if not ctypes.CDLL(None).mallopt(option, value):
            logger.debug("mallopt(%d) was refused", option)


class _Allocator(ctypes.Structure):
    """PyMemAllocatorEx, of Python's C API."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


MXFAST_BYTES: Final = 128
"""glibc's own, for addresses of 64 bits: up to here it keeps freed blocks apart, to hand them out
again, and does not join them with what is free beside them."""

_RAW, _MEM, _OBJ = range(3)
"""PyMemAllocatorDomain: the C library's own, buffers of objects, objects."""

_replaced: dict[int, tuple[object, object]] = {}
"""By domain, while the C library serves it: where Python's own allocator makes and clears memory.
For the process, as what it is about."""


def serve_objects_by_library() -> bool:
    """Have new objects made by the C library's allocator instead of Python's; True if they are now.

    Python's takes memory in pieces of a megabyte and gives one back only when every object in it is
    gone. After 100,000 members have left, a few hundred objects that were made meanwhile and stay
    hold nearly all of it. The C library gives back single pages. It is slower by some percent, and
    so is to be used only while there are very many objects; `serve_objects_by_python` ends it.

    Python's own functions stay in place for freeing and resizing: they tell by the address whose a
    block is, as they have to for blocks above 512 bytes, which the C library has always served.
    That holds for an ordinary CPython before 3.13; any other, and one that is being traced or
    debugged, is left as it is.
    """
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 13):
        return False
    if os.environ.get("PYTHONMALLOC"):
        return False
    if _replaced:
        return True
    raw = _allocator_of(_RAW)
    objects = _allocator_of(_OBJ), _allocator_of(_MEM)
    if raw.context or any(one.context or one.free == raw.free for one in objects):
        return False
    # Joined at once, what is free is whole pages sooner; it takes no more processor time.
    _set_option(M_MXFAST, 0)
    for domain, ours in ((_OBJ, objects[0]), (_MEM, objects[1])):
        _replaced[domain] = ours.malloc, ours.calloc
        ours.malloc, ours.calloc = raw.malloc, raw.calloc
        ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(ours))
    return True


def serve_objects_by_python() -> None:
    """Undo `serve_objects_by_library`, of which nothing else is left but objects that the C library
    has made: they are freed and resized as before.

    New ones go first where Python's allocator has holes, so that those which stay are close
    together again.
    """
    if _replaced:
        _set_option(M_MXFAST, MXFAST_BYTES)
    while _replaced:
        domain, (malloc, calloc) = _replaced.popitem()
        ours = _allocator_of(domain)
        ours.malloc, ours.calloc = malloc, calloc
        ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(ours))


def give_back_free_memory() -> None:
    """Give the system all pages without an object in them that the C library has."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _allocator_of(domain: int) -> _Allocator:
    found = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(found))
    return found
