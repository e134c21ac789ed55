"""The logs of a history, which are partitions of two topics: what is written, and its copies."""

from typing import Final

LISTS: Final = "lists"
COPIES: Final = "copies"
PARTITIONS: Final = 4
"""Partitions of each topic."""
WRITTEN: Final = range(PARTITIONS)
"""The logs that writers append to; each has its copy."""
ALL: Final = range(2 * PARTITIONS)


def place_of(log: int) -> tuple[str, int]:
    """Topic and partition."""
    return (LISTS, log) if log in WRITTEN else (COPIES, log - PARTITIONS)


def log_of(topic: str, index: int) -> int:
    """The reverse."""
    return index if topic == LISTS else index + PARTITIONS


def copy_of(log: int) -> int:
    """Where copies of what is in a log go."""
    return log + PARTITIONS
