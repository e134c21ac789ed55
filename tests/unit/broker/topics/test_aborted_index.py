"""Indexes of aborted transactions: long ones, and damaged ones that another thread rebuilds."""

import asyncio
from pathlib import Path

import pytest

from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.segment import transaction_index
from kohort.broker.topics.manager import TopicManager
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker
from kohort.protocol.records.record import Record
from tests.support.brokers.running_topics import aborted_in, running_topics
from tests.support.records import storage_tools
from tests.unit.broker.topics.transactional_partition import (
    MIB,
    aborted,
    fetched,
    mark,
    one_partition,
    partition_of,
    send,
)


async def abort_four(topics: TopicManager) -> None:
    partition = await one_partition(topics)
    for number in range(4):
        send(partition, 7, number)
        mark(partition, 7, 0, commit=False)


def index_files(directory: Path) -> list[Path]:
    return list(directory.rglob("*.txnindex*"))


def index_file(directory: Path) -> Path:
    (path,) = index_files(directory)
    return path


def spoil_index(directory: Path) -> None:
    path = index_file(directory)
    path.write_bytes(bytes(path.stat().st_size))


async def test_a_long_index_of_aborted_transactions_is_looked_at_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_index, "LONG_ENTRIES", 2)
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        for number in range(3):
            send(partition, 7, number)
            mark(partition, 7, 0, commit=False)
    async with running_topics(tmp_path) as topics:
        partition = partition_of(topics)
        # Its batches are verified now.
        await asyncio.wait_for(fetched(topics, 0, isolation=0), 30)
        assert partition.reads.read_cached(0, MIB, min_one=True) is not None
        assert partition.reads.read_cached(0, MIB, min_one=True, committed_only=True) is None
        data = await asyncio.wait_for(fetched(topics, 0), 30)
        assert aborted(data) == [(7, 0), (7, 2), (7, 4)]
        assert partition.reads.read_cached(0, MIB, min_one=True, committed_only=True) is not None


@pytest.mark.parametrize("long_entries", [2, 100])
async def test_a_damaged_index_is_rebuilt_by_another_thread_for_the_first_who_asks(
    long_entries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_index, "LONG_ENTRIES", long_entries)
    async with running_topics(tmp_path) as topics:
        await abort_four(topics)
    before = index_file(tmp_path).read_bytes()
    spoil_index(tmp_path)
    async with running_topics(tmp_path) as topics:
        partition = partition_of(topics)
        await asyncio.wait_for(fetched(topics, 0, isolation=0), 30)
        assert partition.reads.read_cached(0, MIB, min_one=True, committed_only=True) is None
        data = await asyncio.wait_for(fetched(topics, 0), 30)
        assert aborted(data) == [(7, first) for first in (0, 2, 4, 6)]
        assert partition.reads.read_cached(0, MIB, min_one=True, committed_only=True) is not None
        assert index_file(tmp_path).read_bytes() == before


async def test_a_search_that_finds_a_damaged_index_rebuilds_it(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await abort_four(topics)
    before = index_file(tmp_path).read_bytes()
    spoil_index(tmp_path)
    async with running_topics(tmp_path) as topics:
        search = partition_of(topics).log.aborted.in_read(0, MIB, up_to_offset=8)
        assert [one.first_offset for one in search.at_once()] == [0, 2, 4, 6]
        assert index_file(tmp_path).read_bytes() == before


async def test_what_is_aborted_while_an_index_is_rebuilt_is_in_it(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await abort_four(topics)
    spoil_index(tmp_path)
    async with running_topics(tmp_path) as topics:
        log = partition_of(topics).log
        (segment,) = log.aborted.unready(0)
        repair = log.aborted.repair(segment)
        repair.run()
        send(partition_of(topics), 7, 4)
        mark(partition_of(topics), 7, 0, commit=False)
        repair.take_over()
        assert aborted_in(partition_of(topics), 0, 10) == [(7, first) for first in (0, 2, 4, 6, 8)]
    assert index_file(tmp_path).stat().st_size == 5 * transaction_index.ENTRY_BYTES


async def test_an_index_is_not_put_in_the_place_of_one_that_compaction_has_made(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        await abort_four(topics)
    spoil_index(tmp_path)
    async with running_topics(tmp_path) as topics:
        log = partition_of(topics).log
        (segment,) = log.aborted.unready(0)
        repair = log.aborted.repair(segment)
        repair.run()
        segment.is_deleted = True
        repair.take_over()
        segment.is_deleted = False
        assert log.aborted.unready(0) == [segment]
    assert index_files(tmp_path) == [index_file(tmp_path)]


def test_a_rebuilt_index_is_on_disk_when_its_name_is() -> None:
    log, files = storage_tools.memory_log()
    batch = encode_batch(
        [Record(b"v")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    abort = EndTransactionMarker(ControlType.ABORT, 0)
    storage_tools.append(log, batch)
    storage_tools.append(log, make_marker(abort, producer_id=7, producer_epoch=0, timestamp=0)[0])
    log.close()
    path = "/data/t-0/00000000000000000000.txnindex"
    right = read_file(files, path)
    files.flip(path, 0, 1)

    storage_tools.repair_indexes(storage_tools.open_log(files))
    files.sync_directory("/data/t-0")
    files.lose_power(lambda _count: 0)
    assert read_file(files, path) == right
