"""Divides groups among tasks: all events of a group are in one slice."""

from typing import Final
from zlib import crc32

SLICES: Final = 64
"""More tasks than these do not write at a time."""


def slice_of(cluster_id: str, group: str) -> int:
    return crc32(f"{cluster_id}/{group}".encode(errors="replace")) % SLICES
