"""Which partition of a coordinator's topic has the records of a group, or of a transactional id."""

from typing import Final

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
    for position in range(0, len(units), 2):
        hashed = (31 * hashed + (units[position] << 8 | units[position + 1])) & 0xFFFF_FFFF
    return hashed - 0x1_0000_0000 if hashed & 0x8000_0000 else hashed
