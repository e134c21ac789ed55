"""Have the C library give memory back after a peer has sent something large.

glibc serves large blocks from mappings of their own, which go back to the system when they are
freed. But it learns from each one that is freed: the next of that size comes from the heap, and the
heap's end is not given back until twice as much is free there. After a few requests of 30 MB, 64 MB
stay with the process for good, whatever it does. Fixed limits switch that learning off.
"""

import ctypes
import logging
from typing import Final

logger = logging.getLogger(__name__)

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""From glibc's malloc.h."""

LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Above an ordinary batch: a mapping for each of those would cost more than the copy into it."""


def limit_retained_memory() -> None:
    """For the whole process, from now on; other C libraries than glibc are left as they are."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
        if not mallopt(option, LIMIT_BYTES):
            logger.debug("mallopt(%d) was refused", option)
