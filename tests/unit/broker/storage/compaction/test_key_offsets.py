"""The map of compaction against a dict, and its bounds."""

from random import Random

import pytest

from kohort.broker.storage.compaction import key_offsets
from kohort.broker.storage.compaction.key_offsets import (
    KEY_MEMORY_BYTES,
    SHARD_BYTES,
    KeyOffsets,
    hash_of,
)
from tests.support.measures.memory import traced_memory


@pytest.mark.parametrize("count", [1_500, 2_500])
def test_more_keys_than_fit_into_a_bucket_or_a_shard_are_known_as_well(count: int) -> None:
    """The first batch of a run is always taken, however many keys it has."""
    offsets = KeyOffsets(0, offset_span=1)
    keys = [hash_of(b"%d" % number) for number in range(count)]
    for number, key in enumerate(keys):
        offsets.note(key, number)
        offsets.note(key, number + 1)
    assert len(offsets) == count
    assert [offsets.latest(key) for key in keys] == list(range(1, count + 1))
    assert offsets.latest(hash_of(b"another")) == -1


def test_bytes_of_two_entries_are_not_taken_for_a_key() -> None:
    offsets = KeyOffsets(1 << 10, offset_span=10)
    # With all entries in one bucket, the middle of one and the start of the next are these.
    first, second = b"a" * 16, b"b" * 16
    between = (0).to_bytes(8, "little") + b"b" * 8
    while hash(first) & 127 != hash(second) & 127 or hash(between) & 127 != hash(first) & 127:
        letter = bytes([Random(hash(first) ^ hash(second)).randrange(256)])
        first = hash_of(first + letter)
        second = hash_of(second + letter)
        between = (0).to_bytes(8, "little") + second[:8]
    offsets.note(first, 0)
    offsets.note(second, 7)
    assert offsets.latest(between) == -1
    offsets.note(between, 9)
    assert (offsets.latest(first), offsets.latest(second), offsets.latest(between)) == (0, 7, 9)


def test_it_is_bounded_but_takes_at_least_one_batch() -> None:
    offsets = KeyOffsets(int(5 * KEY_MEMORY_BYTES) + 1, offset_span=1000)
    assert offsets.has_room_for(1000)
    for number in range(3):
        offsets.note(hash_of(b"%d" % number), number)
    assert offsets.has_room_for(2)
    assert not offsets.has_room_for(3)


def test_its_memory_is_what_it_was_given() -> None:
    memory_bytes = 1 << 20
    with traced_memory() as taken:
        offsets = KeyOffsets(memory_bytes, offset_span=1 << 40)
        number = 0
        while offsets.has_room_for(1):
            offsets.note(hash_of(b"%d" % number), number)
            number += 1
        after = taken()
    assert number == int(memory_bytes / KEY_MEMORY_BYTES)
    assert after < memory_bytes * 1.05
    assert (after) / number < 28


def test_few_keys_need_little_memory_however_large_it_may_grow() -> None:
    with traced_memory() as taken:
        offsets = KeyOffsets(128 << 20, offset_span=1 << 40)
        for number in range(1000):
            offsets.note(hash_of(b"%d" % (number % 10)), number)
        after = taken()
    assert len(offsets) == 10
    assert after < 11 * SHARD_BYTES
    assert key_offsets.LOAD_FACTOR == 0.9
