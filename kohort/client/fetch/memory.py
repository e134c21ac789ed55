"""Manners of the C library that a reader of much data has to know."""

from typing import Final

LARGE_BLOCK_BYTES: Final = 16 << 20


def have_freed_memory_kept() -> None:
    """Keep the C library from giving back what every answer takes anew.

    Answers, blocks and records come and go by the megabyte. glibc returns free memory above twice
    the largest block that was ever freed, 256 KiB to begin with, and the system clears it again
    page by page: half of the time of reading records of 1 kB. So such a block is freed here. Nobody
    touches it, so it costs nothing; with another C library it does nothing.
    """
    # Not a bytearray, which is filled with zeros by hand: 4,096 pages, and 31 ms of the loop.
    bytes(LARGE_BLOCK_BYTES)
