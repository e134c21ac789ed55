import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.filesystem import File, write_fully
from kohort.broker.storage.segment.batch_walk import (
    FEW_BYTES,
    BatchAt,
    find_batch,
    header_at,
    walk_batches,
)
from kohort.protocol.records.batch import read_header
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import batch_of, stored

PREFIX_BYTES = 21
"""What the CRC does not cover: base offset, length, epoch, magic and itself."""


def file_of(*contents: bytes) -> tuple[File, SimulatedFileSystem]:
    files = SimulatedFileSystem()
    file = files.create("/log")
    write_fully(file, [b"".join(contents)], 0)
    return file, files


def walk(file: File, *, check_crc: bool = True, chunk_bytes: int = FEW_BYTES) -> list[BatchAt]:
    return list(
        walk_batches(
            file, 0, file.size(), expected_offset=0, check_crc=check_crc, chunk_bytes=chunk_bytes
        )
    )


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=12),
    chunk_bytes=st.integers(61, 5000),
    check_crc=st.booleans(),
)
def test_every_batch_is_met_whatever_is_read_at_once(
    sizes: list[int], chunk_bytes: int, check_crc: bool
) -> None:
    batches = [stored(batch_of(b"v" * size), number) for number, size in enumerate(sizes)]
    file, _ = file_of(*batches)
    walked = walk(file, check_crc=check_crc, chunk_bytes=chunk_bytes)
    assert [batch.header for batch in walked] == [read_header(batch) for batch in batches]
    assert walked[0].position == 0
    assert [batch.stop for batch in walked[:-1]] == [batch.position for batch in walked[1:]]


@pytest.mark.parametrize("position", range(PREFIX_BYTES + 10))
@pytest.mark.parametrize("mask", [1, 128])
def test_no_damaged_byte_of_a_header_passes_unless_it_is_the_epoch(
    position: int, mask: int
) -> None:
    first, second = stored(batch_of(b"one"), 0), stored(batch_of(b"two"), 1)
    file, files = file_of(first, second)
    files.flip("/log", position, mask)
    if 12 <= position < 16:
        assert len(walk(file)) == 2
        return
    with pytest.raises(CorruptBatchError):
        walk(file)


def test_without_the_crc_only_headers_are_judged() -> None:
    file, files = file_of(stored(batch_of(b"one"), 0))
    files.flip("/log", 65, 1)
    assert len(walk(file, check_crc=False)) == 1
    with pytest.raises(CorruptBatchError):
        walk(file)


@pytest.mark.parametrize(
    "contents",
    [
        [stored(batch_of(b"one"), 1)],
        [stored(batch_of(b"one"), 0), stored(batch_of(b"two"), 2)],
        [stored(batch_of(b"one"), 0), stored(batch_of(b"two"), 0)],
        [stored(batch_of(b"one"), 0)[:-1]],
        [stored(batch_of(b"one"), 0), b"\0" * 200],
        [stored(batch_of(b"one"), 0), b"\0"],
        [b"\xff" * 100],
    ],
    ids=["gap before", "gap", "overlap", "cut off", "zeros", "one byte more", "garbage"],
)
def test_what_does_not_follow_ends_the_walk(contents: list[bytes]) -> None:
    file, _ = file_of(*contents)
    with pytest.raises(CorruptBatchError):
        walk(file)


def test_a_batch_that_reaches_into_the_next_segment_ends_the_walk() -> None:
    file, _ = file_of(stored(batch_of(b"one"), 0), stored(batch_of(b"two", b"three"), 1))
    for following_offset, count in ((3, 2), (2, 1)):
        found = walk_batches(
            file, 0, file.size(), expected_offset=0, following_offset=following_offset
        )
        assert next(found).header.base_offset == 0
        if count == 2:
            assert next(found).header.base_offset == 1
            continue
        with pytest.raises(CorruptBatchError):
            next(found)


def test_a_file_that_lost_its_end_since_it_was_measured_is_damage() -> None:
    file, _ = file_of(stored(batch_of(b"v" * 9000), 0))
    size = file.size()
    file.truncate(size - 100)
    with pytest.raises(CorruptBatchError):
        list(walk_batches(file, 0, size, expected_offset=0, check_crc=True))


def test_a_header_is_found_only_where_a_batch_can_start() -> None:
    batch = stored(batch_of(b"one"), 7)
    file, _ = file_of(batch, batch)
    assert header_at(file, len(batch), file.size()) == read_header(batch)
    assert header_at(file, 1, file.size()) is None
    assert header_at(file, file.size() + 5, file.size()) is None
    assert header_at(file, len(batch), file.size() - 1) is None


def test_a_batch_is_found_by_its_offset_behind_any_garbage() -> None:
    wanted = stored(batch_of(b"wanted"), 1000)
    imitation = (1000).to_bytes(8, "big") + wanted[8:-1] + b"?"
    garbage = b"x" * (1 << 17) + imitation + b"\0" * 7
    file, _ = file_of(garbage, wanted, stored(batch_of(b"next"), 1001))
    found = find_batch(file, 0, file.size(), 1000)
    assert found is not None
    assert found.position == len(garbage)
    assert find_batch(file, 0, file.size(), 999) is None
    assert find_batch(file, len(garbage) + 1, file.size(), 1000) is None
