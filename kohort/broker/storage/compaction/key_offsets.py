"""The map used by compaction: the latest offset of every key in a range of a log, in little memory.

The number of keys that the map can hold determines how far one run of compaction gets, so a key
takes 24 bytes, as in Kafka's SkimpyOffsetMap: a hash of 16 bytes, which is assumed to be unique,
and the offset.

A Python dict would need 200 bytes a key. Instead the entries are stored in byte arrays: shards of
buckets of 16 entries. The hash of a key selects its bucket; if that is full, the key is stored in
the shard's next bucket with a free entry. `bytearray.find` searches a bucket in a tenth of a
microsecond. Shards are created with their first key, so a log of few keys needs little memory
however large the map may grow. The shard and bucket of a key depend on a secret of the process, so
that keys cannot be chosen to collide.
"""

from hashlib import blake2b
from struct import Struct
from typing import Final

from kohort.protocol.records.varint import Buffer

HASH_BYTES: Final = 16
LOAD_FACTOR: Final = 0.9
"""Kafka's log.cleaner.io.buffer.load.factor: the share of the entries that may be used."""

_ENTRY: Final = Struct(f"<{HASH_BYTES}sq")
_OFFSET: Final = Struct("<q")
_ENTRY_BYTES: Final = _ENTRY.size
_BUCKET_ENTRIES: Final = 16
_BUCKET_BYTES: Final = _BUCKET_ENTRIES * _ENTRY_BYTES
_BUCKETS: Final = 128
"""Buckets in a shard; a power of two."""
_BUCKET_MASK: Final = _BUCKETS - 1
_BUCKET_BITS: Final = _BUCKETS.bit_length() - 1
SHARD_BYTES: Final = _BUCKETS * _BUCKET_BYTES
KEY_MEMORY_BYTES: Final = _ENTRY_BYTES / LOAD_FACTOR
"""Memory per key; the measured value is 26.8 bytes."""


def hash_of(key: Buffer) -> bytes:
    return blake2b(key, digest_size=HASH_BYTES).digest()


class KeyOffsets:
    """Maps keys to their latest offsets. Keys are passed as hashes from `hash_of`."""

    __slots__ = ("_keys_max", "_overflow", "_shards", "_size")

    def __init__(self, memory_bytes: int, *, offset_span: int) -> None:
        """`memory_bytes` limits the map; `offset_span` is the number of offsets in its range, and
        so an upper bound for the number of keys.
        """
        self._keys_max = max(1, int(memory_bytes / KEY_MEMORY_BYTES))
        entry_count = min(self._keys_max, max(1, offset_span)) / LOAD_FACTOR
        shard_count = int(entry_count / (_BUCKETS * _BUCKET_ENTRIES)) + 1
        self._shards: list[tuple[bytearray, bytearray] | None] = [None] * shard_count
        """Per shard, the entries, and the number of entries in each bucket."""
        self._overflow: dict[bytes, int] = {}
        """The few keys that do not fit in their shard."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def has_room_for(self, count: int) -> bool:
        """Whether `count` more keys are within the limit; always true for an empty map."""
        return not self._size or self._size + count <= self._keys_max

    def note(self, key_hash: bytes, offset: int) -> None:
        place = hash(key_hash)
        shards = self._shards
        number = (place >> _BUCKET_BITS) % len(shards)
        shard = shards[number]
        if shard is None:
            shard = shards[number] = bytearray(SHARD_BYTES), bytearray(_BUCKETS)
        entries, counts = shard
        bucket = first = place & _BUCKET_MASK
        while True:
            start = bucket * _BUCKET_BYTES
            count = counts[bucket]
            stop = start + count * _ENTRY_BYTES
            found = _find(entries, key_hash, start, stop)
            if found >= 0:
                _OFFSET.pack_into(entries, found + HASH_BYTES, offset)
                return
            if count < _BUCKET_ENTRIES:
                _ENTRY.pack_into(entries, stop, key_hash, offset)
                counts[bucket] = count + 1
                self._size += 1
                return
            bucket = (bucket + 1) & _BUCKET_MASK
            if bucket == first:
                break
        self._size += key_hash not in self._overflow
        self._overflow[key_hash] = offset

    def latest(self, key_hash: bytes) -> int:
        """Return the latest offset of a key, -1 if there is none."""
        place = hash(key_hash)
        shard = self._shards[(place >> _BUCKET_BITS) % len(self._shards)]
        if shard is None:
            return -1
        entries, counts = shard
        bucket = first = place & _BUCKET_MASK
        while True:
            start = bucket * _BUCKET_BYTES
            count = counts[bucket]
            found = _find(entries, key_hash, start, start + count * _ENTRY_BYTES)
            if found >= 0:
                offset: int = _OFFSET.unpack_from(entries, found + HASH_BYTES)[0]
                return offset
            if count < _BUCKET_ENTRIES:
                return -1
            bucket = (bucket + 1) & _BUCKET_MASK
            if bucket == first:
                return self._overflow.get(key_hash, -1)


def _find(entries: bytearray, key_hash: bytes, start: int, stop: int) -> int:
    """Return where the entry of a key begins, -1 if there is none."""
    found = entries.find(key_hash, start, stop)
    while found >= 0 and (found - start) % _ENTRY_BYTES:
        # The match extends over two entries: continue the search.
        found = entries.find(key_hash, found + 1, stop)
    return found
