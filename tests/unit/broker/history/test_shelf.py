"""Records side by side, and what becomes of the place of those that are dropped."""

import random
import zlib

from kohort.broker.history.shelf import (
    BLOCK_BYTES,
    BLOCK_RECORDS,
    LARGE_BYTES,
    WASTE_DIVISOR,
    Kept,
    Packed,
    Shelf,
)


def plain(data: bytes) -> Packed:
    return Packed(data, is_compressed=False)


def test_records_come_back_as_they_were_put() -> None:
    shelf = Shelf()
    texts = [b"x" * size for size in (0, 1, 4_000, LARGE_BYTES - 1, LARGE_BYTES, 3 * BLOCK_BYTES)]
    kept = [shelf.put("g", plain(text)) for text in texts]
    packed = shelf.put("g", Packed(zlib.compress(b"y" * 9_000), is_compressed=True))
    assert [one.text for one in kept] == texts
    assert [one.is_compressed for one in kept] == [False] * len(texts)
    assert packed.is_compressed
    assert packed.text == b"y" * 9_000


def test_the_head_of_a_record_is_had_without_the_rest() -> None:
    shelf = Shelf()
    text = bytes(range(256)) * 100
    for packed in (plain(text), Packed(zlib.compress(text), is_compressed=True)):
        kept = shelf.put("g", packed)
        assert kept.head(1_000) == text[:1_000]
        assert kept.head(1 << 20) == text


def test_small_records_share_blocks_and_a_large_one_has_its_own() -> None:
    shelf = Shelf()
    small = [shelf.put("g", plain(b"x")) for _ in range(BLOCK_RECORDS + 1)]
    large = shelf.put("g", plain(bytes(LARGE_BYTES)))
    after = shelf.put("g", plain(b"x"))
    assert len({one.block for one in small}) == 2
    assert small[-1].block is after.block is not large.block


def test_a_record_that_was_dropped_stays_whole_for_who_still_reads_it() -> None:
    shelf = Shelf()
    reading = shelf.put("g", plain(b"a" * 1_000))
    shelf.drop(reading)
    for _ in range(1_000):
        shelf.drop(shelf.put("g", plain(b"b" * 1_000)))
    assert reading.text == b"a" * 1_000


def test_nothing_is_left_when_all_were_dropped() -> None:
    shelf = Shelf()
    kept = [shelf.put("g", plain(bytes(1_000))) for _ in range(1_000)]
    random.Random(1).shuffle(kept)
    for one in kept:
        shelf.drop(one)
    assert (shelf.used_bytes, shelf.live_bytes) == (0, 0)
    assert shelf.worst() is None


def test_dropped_records_never_take_much_when_the_worst_block_is_cleaned_up() -> None:
    chance = random.Random(2)
    shelf = Shelf()
    kept: list[Kept] = []
    texts: list[bytes] = []
    for number in range(20_000):
        texts.append(b"%d" % number * chance.randrange(1, 400))
        kept.append(shelf.put("g", plain(texts[-1])))
        if len(kept) > 2_000:
            index = chance.randrange(len(kept))
            shelf.drop(kept.pop(index))
            del texts[index]
        while (worst := shelf.worst()) is not None:
            kept = [shelf.move("g", one) if one.block is worst else one for one in kept]
        limit = shelf.live_bytes + shelf.live_bytes // WASTE_DIVISOR + BLOCK_BYTES
        assert shelf.used_bytes <= limit
    assert shelf.live_bytes == sum(one.size_bytes for one in kept)
    assert [one.text for one in kept] == texts


def test_a_block_knows_whose_records_it_has() -> None:
    shelf = Shelf()
    first, second = shelf.put("a", plain(b"1")), shelf.put("b", plain(b"2"))
    moved = shelf.move("b", second)
    assert first.block.owners == {"a", "b"}
    assert moved.text == b"2"
