"""Ranges that are found with a few looks into memory: the same as those that a read finds."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.storage.file_range import FileRange
from kohort.broker.storage.filesystem import OsFileSystem
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.segment.read import RANGE_BYTES_MIN, cached_range, read_batches
from kohort.broker.storage.segment.segment import LogSegment
from tests.support.records.storage_tools import append, batch_of, open_log, settings

SIZES = (10, 900, 3_000, 5_000, 30_000, 90_000, 300_000)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    config = settings(segment_bytes=1 << 30, index_interval_bytes=4096)
    log = open_log(OsFileSystem(open_files_max=64), tmp_path, config=config)
    create = random.Random(3)
    for _ in range(150):
        append(log, batch_of(create.randbytes(create.choice(SIZES))))
    if log.segments[0].log.range(0, 100) is None:
        pytest.skip("this kernel does not say what is in memory")
    yield log
    log.close()


def read(segment: LogSegment, offset: int, max_bytes: int) -> FileRange | bytes | None:
    return read_batches(
        segment,
        offset,
        max_bytes,
        up_to_offset=None,
        min_one=False,
        epoch_at=lambda _offset: 0,
        as_range=True,
    )


def content(found: FileRange | bytes | None) -> bytes:
    assert found is not None
    return found if isinstance(found, bytes) else found.take(len(found))


def test_each_range_is_the_one_that_a_read_finds(log: PartitionLog) -> None:
    (segment,) = log.segments
    found_count = 0
    for max_bytes in (RANGE_BYTES_MIN - 1, RANGE_BYTES_MIN, 100_000, 350_000, 1 << 20, 1 << 30):
        for offset in range(log.log_end_offset):
            before = cached_range(segment, offset, max_bytes)
            expected = content(read(segment, offset, max_bytes))
            after = cached_range(segment, offset, max_bytes)
            for found in (before, after):
                if found is not None:
                    found_count += 1
                    assert content(found) == expected
    assert found_count > 200


def test_bytes_that_were_not_checked_are_in_no_range(log: PartitionLog, tmp_path: Path) -> None:
    log.close()
    config = settings(segment_bytes=1 << 30, index_interval_bytes=4096)
    again = open_log(OsFileSystem(open_files_max=64), tmp_path, config=config)
    (segment,) = again.segments
    segment.hint(0, 0)
    assert cached_range(segment, 0, 1 << 20) is None
    first = read(segment, 0, 1 << 20)
    assert not isinstance(first, bytes)
    assert cached_range(segment, 0, 1 << 20) is None, "the batch behind is not checked"
    checked = first.take(1 << 20) if first is not None else b""
    assert content(cached_range(segment, 0, len(checked))) == checked
    again.close()


def test_what_is_not_in_memory_is_not_waited_for(log: PartitionLog) -> None:
    (segment,) = log.segments
    segment.save_indexes()
    segment.hint(0, 0)
    assert cached_range(segment, 0, 1 << 20) is not None
    for file in (segment.log, segment.index._file):
        assert file is not None
        file.sync()
        file.drop_cached()
    if segment.log.is_cached(0, 1 << 20):
        pytest.skip("this file system keeps everything in memory")
    with pytest.raises(BlockingIOError):
        cached_range(segment, 0, 1 << 20)
    assert content(log.read(0, 1 << 20, up_to_offset=log.log_end_offset, min_one=True))


def test_an_index_that_does_not_fit_is_not_believed(log: PartitionLog) -> None:
    (segment,) = log.segments
    segment.hint(0, 0)
    expected = content(read(segment, 0, 1 << 20))
    entries = [segment.index[number] for number in range(len(segment.index))]
    segment.index.replace_all([one._replace(last_offset=one.last_offset + 1) for one in entries])
    assert cached_range(segment, 0, 1 << 20) is None
    segment.index.replace_all([one._replace(position=one.position + 1) for one in entries])
    assert cached_range(segment, 0, 1 << 20) is None
    assert content(read(segment, 0, 1 << 20)) == expected
