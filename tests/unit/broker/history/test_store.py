"""Records side by side, and what becomes of the place of those that are dropped."""

import random
import zlib

from kohort.broker.history.store import (
    BLOCK_BYTES,
    BLOCK_RECORDS,
    LARGE_BYTES,
    WASTE_DIVISOR,
    HistoryStore,
    StoredRecord,
)


def plain(data: bytes) -> bytes:
    """A record that is not compressed, whatever its size."""
    return b"\0" + data


def compressed(data: bytes) -> bytes:
    return b"\1" + zlib.compress(data)


def test_records_come_back_as_they_were_put() -> None:
    store = HistoryStore()
    texts = [b"x" * size for size in (0, 1, 4_000, LARGE_BYTES - 1, LARGE_BYTES, 3 * BLOCK_BYTES)]
    kept = [store.put("g", plain(text)) for text in texts]
    packed = store.put("g", compressed(b"y" * 9_000))
    assert [one.text for one in kept] == texts
    assert [one.is_compressed for one in kept] == [False] * len(texts)
    assert packed.is_compressed
    assert packed.text == b"y" * 9_000


def test_the_head_of_a_record_is_had_without_the_rest() -> None:
    store = HistoryStore()
    text = bytes(range(256)) * 100
    for packed in (plain(text), compressed(text)):
        kept = store.put("g", packed)
        assert kept.head(1_000) == text[:1_000]
        assert kept.head(1 << 20) == text


def test_small_records_share_blocks_and_a_large_one_has_its_own() -> None:
    store = HistoryStore()
    small = [store.put("g", plain(b"x")) for _ in range(BLOCK_RECORDS + 1)]
    large = store.put("g", plain(bytes(LARGE_BYTES)))
    after = store.put("g", plain(b"x"))
    assert len({one.block for one in small}) == 2
    assert small[-1].block is after.block is not large.block


def test_a_record_that_was_dropped_stays_whole_for_who_still_reads_it() -> None:
    store = HistoryStore()
    reading = store.put("g", plain(b"a" * 1_000))
    store.drop(reading)
    for _ in range(1_000):
        store.drop(store.put("g", plain(b"b" * 1_000)))
    assert reading.text == b"a" * 1_000


def test_nothing_is_left_when_all_were_dropped() -> None:
    store = HistoryStore()
    kept = [store.put("g", plain(bytes(1_000))) for _ in range(1_000)]
    random.Random(1).shuffle(kept)
    for one in kept:
        store.drop(one)
    assert (store.used_bytes, store.live_bytes) == (0, 0)
    assert store.worst() is None


def test_dropped_records_never_take_much_when_the_worst_block_is_cleaned_up() -> None:
    chance = random.Random(2)
    store = HistoryStore()
    kept: list[StoredRecord] = []
    texts: list[bytes] = []
    for number in range(5_000):
        texts.append(b"%d" % number * chance.randrange(1, 400))
        kept.append(store.put("g", plain(texts[-1])))
        if len(kept) > 500:
            index = chance.randrange(len(kept))
            store.drop(kept.pop(index))
            del texts[index]
        while (worst := store.worst()) is not None:
            kept = [store.move("g", one) if one.block is worst else one for one in kept]
        limit = store.live_bytes + store.live_bytes // WASTE_DIVISOR + BLOCK_BYTES
        assert store.used_bytes <= limit
    assert store.live_bytes == sum(one.size_bytes for one in kept)
    assert [one.text for one in kept] == texts


def test_a_block_knows_whose_records_it_has() -> None:
    store = HistoryStore()
    first, second = store.put("a", plain(b"1")), store.put("b", plain(b"2"))
    moved = store.move("b", second)
    assert first.block.owners == {"a", "b"}
    assert moved.text == b"2"
