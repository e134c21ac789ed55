"""Returns the C library's free memory to the system.

glibc allocates large blocks by mappings of their own, which go back to the system when they are
freed. But it adapts each time that one is freed: the next block of that size comes from the heap,
whose end is returned only once twice as much is free there. After a few requests of 30 MB, the
process keeps 64 MB for good. Fixed limits disable that adaptation.

Other C libraries are left alone.
"""

import contextlib
import logging
from typing import Any, Final

logger = logging.getLogger(__name__)

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""A constant of glibc's malloc.h."""

MMAP_THRESHOLD_BYTES: Final = 8 * 1024 * 1024
"""Larger blocks get a mapping of their own. Above an ordinary batch, and above the 4 MiB buffers
that liblz4 allocates for a frame with its largest block size: the page faults of a new mapping take
longer than decompression."""

TRIM_THRESHOLD_BYTES: Final = 32 * 1024 * 1024
"""Free bytes at the end of the heap beyond which it shrinks. Above what one Produce needs, so that
the heap does not shrink and grow with each batch; free memory is returned when the broker is
idle."""

_LIMITS: Final = (
    (M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES),
    (M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES),
)


def limit_retained_memory() -> None:
    """Set the limits for the whole process, and return the memory that startup used."""
    with contextlib.suppress(AttributeError, OSError):
        library = _library()
        for option, limit_bytes in _LIMITS:
            if not library.mallopt(option, limit_bytes):
                logger.debug("mallopt(%d) failed", option)
    return_free_memory()


def return_free_memory() -> None:
    """Return all of the C library's free pages to the system. Searching for them takes ten
    milliseconds after heavy use, and returning each takes a microsecond.
    """
    with contextlib.suppress(AttributeError, OSError):
        _library().malloc_trim(0)


def _library() -> Any:  # noqa: ANN401 - it has any function.
    import ctypes  # noqa: PLC0415 - 10 ms that a start saves.

    return ctypes.CDLL(None)
