"""The hash of the topics that a group subscribes to, as Kafka computes and stores it: the group
epoch grows when it changes.
"""

import struct
from collections.abc import Mapping
from typing import Final

import xxhash

_FORMAT: Final = b"\0"
_COUNT: Final = struct.Struct("<i").pack
_SIGNED_64: Final = struct.Struct("<q")
_UNSIGNED_64: Final = struct.Struct("<Q")
_UUID_HALVES: Final = struct.Struct(">qq")


def metadata_hash(topics: Mapping[str, tuple[bytes, int]]) -> int:
    """Return the hash as a signed int64; 0 if there is no topic.

    Args:
        topics: id and number of partitions of the existing topics, by name.
    """
    if not topics:
        return 0
    digest = xxhash.xxh3_64()
    for name in sorted(topics):
        digest.update(_UNSIGNED_64.pack(_topic_hash(name, *topics[name])))
    return _signed(digest.intdigest())


def _topic_hash(name: str, topic_id: bytes, partition_count: int) -> int:
    digest = xxhash.xxh3_64(_FORMAT)
    high, low = _UUID_HALVES.unpack(topic_id)
    digest.update(_SIGNED_64.pack(high) + _SIGNED_64.pack(low))
    encoded = name.encode("utf-16-le")
    digest.update(encoded + _COUNT(len(encoded) // 2))
    digest.update(_COUNT(partition_count))
    # The racks of each partition's replicas would follow its number; this broker has none.
    digest.update(struct.pack(f"<{partition_count}i", *range(partition_count)))
    return int(digest.intdigest())


def _signed(value: int) -> int:
    signed: int = _SIGNED_64.unpack(_UNSIGNED_64.pack(value))[0]
    return signed
