"""Which partition of a coordinator's topic has the records of a group, or of a transactional id.

This module is compiled, because an id may have 32 kB and all ids are hashed at each start;
coordinator_partitions.pxd gives the types.
"""

from typing import Final

ID_CHARACTERS_MAX: Final = 1_024
"""Maximum length of new group ids and new transactional ids. Their number is limited too, so this
limits their memory. Kafka has no limit; ids of Kafka Streams and Flink have at most 300."""

_JAVA_INT_MIN: Final = -0x8000_0000


def partition_of(key: str, partition_count: int) -> int:
    """Return the partition of a group id or transactional id: the absolute value of Java's string
    hash, modulo the count.

    As in Kafka, the one hash without an absolute value in 32 bits counts as 0 (`Utils.abs`).
    """
    hashed = java_hash(key)
    return 0 if hashed == _JAVA_INT_MIN else abs(hashed) % partition_count


def java_hash(text: str) -> int:
    """Return the result of Java's `String.hashCode`."""
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    count = len(units)
    for position in range(0, count, 2):
        high = units[position]
        low = units[position + 1]
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFF_FFFF
    return hashed - 0x1_0000_0000 if hashed & 0x8000_0000 else hashed
