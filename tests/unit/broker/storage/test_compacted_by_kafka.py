"""Segments that Apache Kafka 4.4 compacted: offsets are missing between batches and within them.

Of 75 offsets 17 records are left. Batches keep the offsets that they began with, so the first is
0 to 2 with one record; nothing is left of 6 to 9, 32 to 35 and 52 to 71.
"""

import shutil
from pathlib import Path

import pytest

from kohort.broker.config.topic import TopicConfig
from kohort.broker.storage.compaction.cleaner import Compaction, plan_compaction
from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.log.opening import OpeningTerms
from kohort.protocol.records.batch import BatchHeader, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from tests.support.records.storage_tools import repair_indexes

GAPS = [*range(6, 10), *range(32, 36), *range(52, 72)]
FIRST = "00000000000000000000.log"
END = 75
WALL_MS = 1_800_000_000_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).parent / "compacted_by_kafka", tmp_path / "t-0"))


def opened(
    directory: Path, *, recovery_point: int | None = None, config: TopicConfig | None = None
) -> PartitionLog:
    """After a clean stop, or up to `recovery_point` after another one."""
    return PartitionLog.open(
        directory,
        config or TopicConfig(),
        OpeningTerms(
            wall_ms=WALL_MS,
            clean_shutdown=recovery_point is None,
            recovery_point=recovery_point or 0,
        ),
    )


def batches(data: bytes) -> list[BatchHeader]:
    found, position = [], 0
    while position < len(data):
        found.append(read_header(data, position))
        position += found[-1].size_bytes
    return found


def consumed(log: PartitionLog, *, max_bytes: int) -> list[int]:
    """The offsets of all records, as a consumer comes by them."""
    found: list[int] = []
    offset = log.log_start_offset
    while data := log.read(offset, max_bytes, up_to_offset=log.log_end_offset, min_one=True):
        position = 0
        for header in batches(data):
            batch = data[position : position + header.size_bytes]
            found += [record.offset for record in decode_records(batch)]
            position += header.size_bytes
            offset = header.next_offset
    return found


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_a_consumer_gets_every_record_that_is_left(directory: Path, max_bytes: int) -> None:
    log = opened(directory)
    offsets = consumed(log, max_bytes=max_bytes)
    assert len(offsets) == len(set(offsets)) == 17
    assert offsets == sorted(offsets)
    assert not set(offsets) & set(GAPS)
    assert offsets[-1] == END - 1


@pytest.mark.parametrize("offset", range(END))
def test_every_offset_can_be_asked_for(directory: Path, offset: int) -> None:
    """One that is gone is answered with what follows it."""
    log = opened(directory)
    first, *_ = batches(log.read(offset, 1 << 20, up_to_offset=END, min_one=True))
    assert first.last_offset >= offset
    assert first.base_offset <= offset or offset in GAPS


@pytest.mark.parametrize("recovery_point", [0, 40, 72, 75])
def test_a_stop_that_was_not_clean_costs_nothing(directory: Path, recovery_point: int) -> None:
    log = opened(directory, recovery_point=recovery_point)
    assert log.log_end_offset == END
    assert len(consumed(log, max_bytes=1 << 20)) == 17
    batch = encode_batch([Record(b"new", key=b"k")])
    header = read_header(batch)
    assert log.append(batch, header, leader_epoch=0, wall_ms=WALL_MS).base_offset == END


def test_times_are_found(directory: Path) -> None:
    log = opened(directory)
    latest = log.max_timestamp()
    assert latest is not None
    assert latest.offset == END - 1
    assert log.offset_for_timestamp(0, up_to_offset=END) is not None
    assert log.offset_for_timestamp(latest.timestamp, up_to_offset=END) == latest
    assert log.detached_offset_for_timestamp(latest.timestamp).run() == latest


def test_a_missing_end_of_a_segment_leads_into_the_next(directory: Path) -> None:
    path = directory / FIRST
    data = path.read_bytes()
    cut = sum(header.size_bytes for header in batches(data)[:-2])
    path.write_bytes(data[:cut])
    log = opened(directory)
    (header,) = batches(log.read(49, 1 << 20, up_to_offset=END, min_one=True))
    assert header.base_offset == END - 1
    assert len(consumed(log, max_bytes=1 << 20)) == 14


def test_our_own_compaction_goes_over_it(directory: Path) -> None:
    config = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log = opened(directory, config=config)
    before = consumed(log, max_bytes=1 << 20)
    plan = plan_compaction(log, first_dirty_offset=0, up_to_offset=END, wall_ms=WALL_MS)
    assert plan is not None
    repair_indexes(log)
    compaction = Compaction(log, plan, memory_bytes=1 << 20, wall_ms=WALL_MS)
    while compaction.work():
        compaction.swap(wall_ms=WALL_MS)
    compaction.close()
    assert consumed(log, max_bytes=1 << 20) == before
    log.close()
    assert consumed(opened(directory, config=config), max_bytes=1 << 20) == before


def test_a_base_offset_that_was_damaged_is_no_gap(directory: Path) -> None:
    """This holds as long as the batch had no gap behind it to move into."""
    path = directory / FIRST
    whole = path.read_bytes()
    dense = [header for header in batches(whole) if header.next_offset not in GAPS]
    position = 0
    for header in batches(whole):
        if header in dense:
            damaged = bytearray(whole)
            moved = header.base_offset + 1
            damaged[position : position + 8] = moved.to_bytes(8, "big")
            path.write_bytes(damaged)
            log = opened(directory)
            with pytest.raises(CorruptBatchError):
                log.read(header.last_offset, 1, up_to_offset=END, min_one=True)
        position += header.size_bytes
