"""The C library's free memory, given back to the system.

glibc serves large blocks from mappings of their own, which go back to the system when they are
freed. But it learns from each one that is freed: the next of that size comes from the heap, and the
heap's end is not given back until twice as much is free there. After a few requests of 30 MB, 64 MB
stay with the process for good, whatever it does. Fixed limits switch that learning off.

Other C libraries are left as they are.
"""

import contextlib
import logging
from typing import Any, Final

logger = logging.getLogger(__name__)

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""From glibc's malloc.h."""

LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Above an ordinary batch: a mapping for each of those would cost more than the copy into it."""


def limit_retained_memory() -> None:
    """For the whole process, from now on; what the start needed is given back at once."""
    with contextlib.suppress(AttributeError, OSError):
        library = _library()
        for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            if not library.mallopt(option, LIMIT_BYTES):
                logger.debug("mallopt(%d) was refused", option)
    give_back_free_memory()


def give_back_free_memory() -> None:
    """Give the system all pages without an object in them that the C library has. To look for them
    takes ten milliseconds when very much was used, and a microsecond more for each.
    """
    with contextlib.suppress(AttributeError, OSError):
        _library().malloc_trim(0)


def _library() -> Any:  # noqa: ANN401 - it has any function.
    import ctypes  # noqa: PLC0415 - 10 ms that a start saves.

    return ctypes.CDLL(None)
