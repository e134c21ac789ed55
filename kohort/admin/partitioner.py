"""Chooses partitions by key in the same way as Kafka's clients, so that a key keeps its partition.

As in Java and in librdkafka's `murmur2_random`: murmur2 of the key, with the sign bit cleared,
modulo the number of partitions.
"""

from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's `Utils.murmur2`, unsigned."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for place in range(0, whole, 4):
        word = int.from_bytes(data[place : place + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        value = value * _FACTOR & _MASK ^ word
    if whole < length:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return value ^ value >> 15


@lru_cache(maxsize=4096)
def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of records with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
