"""Transactions of a running partition: markers, the last stable offset, and who reads up to it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.broker.core.partition.producers import ProducerSnapshot
from kohort.broker.core.partition.transactions import OpenTransaction
from kohort.broker.runtime.later import Later
from kohort.broker.storage.log import transactions
from kohort.broker.storage.segment import transaction_index
from kohort.broker.topics import fetch
from kohort.broker.topics.fetch import DelayedFetch, FetchPass, PartitionRead
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Appended, Partition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.protocol.records.batch import iter_headers, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record
from kohort.testing.inline_executor import InlineExecutor
from tests.support.brokers.running_topics import (
    aborted_in,
    append,
    ask,
    running_topics,
)
from tests.support.measures.busy_clock import BusyClock

TIME = 1_700_000_000_000
MIB = 1 << 20
FLUSH_EACH = "log.flush.interval.messages=1"
COMMITTED = 1


async def one_partition(topics: TopicManager, **configs: str) -> Partition:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    topic = await topics.changes.create_topic("t", partition_count=1, configs=named)
    return topic.partitions[0]


def partition_of(topics: TopicManager) -> Partition:
    partition = topics.partition("t", 0)
    assert partition is not None
    return partition


def send(
    partition: Partition,
    producer_id: int,
    sequence: int = 0,
    *,
    epoch: int = 0,
    count: int = 1,
    size: int = 5,
    timestamp: int = TIME,
    transactional: bool = True,
) -> Appended:
    batch = encode_batch(
        [Record(b"v" * size, timestamp=timestamp)] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return partition.append(batch, read_header(batch), wall_ms=TIME)


def mark(
    partition: Partition, producer_id: int, epoch: int, *, commit: bool, version: int = 1
) -> Appended:
    return partition.append_marker(
        producer_id,
        epoch,
        ControlType.COMMIT if commit else ControlType.ABORT,
        coordinator_epoch=0,
        transaction_version=version,
        wall_ms=TIME,
    )


async def fetched(
    topics: TopicManager, offset: int, *, isolation: int = COMMITTED, max_bytes: int = MIB
) -> PartitionData:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 * MIB,
        isolation_level=isolation,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    response = await ask(topics, request, 11)
    (found,) = response.responses[0].partitions
    assert isinstance(found, PartitionData)
    return found


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    if data.aborted_transactions is None:
        return None
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions]


def offsets(data: PartitionData) -> list[int]:
    """Base offsets of the batches in an answer."""
    return [header.base_offset for _, header in iter_headers(data.records or b"")]


def forget_indexes(directory: Path) -> None:
    paths = list(directory.rglob("*.txnindex"))
    assert paths
    for path in paths:
        path.unlink()


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


async def listed(
    topics: TopicManager, timestamp: int, *, isolation: int = COMMITTED
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name="t", partitions=[partition])],
    )
    response = await ask(topics, request)
    (found,) = response.topics[0].partitions
    assert isinstance(found, ListOffsetsPartitionResponse)
    return found


async def test_a_marker_is_written_as_kafka_writes_it(tmp_path: Path) -> None:
    """A commit at offset 0 of producer 4242, epoch 0, by Kafka 4.4."""
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        appended = partition.append_marker(
            4242,
            0,
            ControlType.COMMIT,
            coordinator_epoch=0,
            transaction_version=1,
            wall_ms=0x1A20289C4C5,
        )
        assert (appended.base_offset, appended.next_offset) == (0, 1)
        assert bytes(partition.reads.read(0, MIB, min_one=True)) == bytes.fromhex(
            "0000000000000000 00000042 00000000 02 69f4270b 0030 00000000 000001a20289c4c5"
            "000001a20289c4c5 0000000000001092 0000 ffffffff 00000001"
            "20 00 00 00 08 00000001 0c 000000000000 00"
        )


async def test_a_marker_that_comes_too_late_is_refused_and_not_written(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        mark(partition, 1, 5, commit=True)
        with pytest.raises(KafkaError) as refused:
            mark(partition, 1, 4, commit=True)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition.log.log_end_offset == 1


async def test_an_open_transaction_holds_the_stable_offset_until_its_marker(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        append(partition)
        assert partition.last_stable_offset == 1
        send(partition, 1, count=2)
        append(partition)
        assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
        send(partition, 2)
        mark(partition, 1, 0, commit=True)
        assert (partition.last_stable_offset, partition.high_watermark) == (4, 6)
        mark(partition, 2, 0, commit=False)
        assert (partition.last_stable_offset, partition.high_watermark) == (7, 7)


async def test_what_is_told_of_producers_and_transactions(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        send(partition, 1, count=2)
        send(partition, 2)
        mark(partition, 2, 1, commit=False, version=2)
        assert partition.producers_seen() == [
            ProducerSnapshot(1, 0, 1, 1, 1, TIME, -1, 0),
            ProducerSnapshot(2, 1, -1, -1, 0, TIME, 0, -1),
        ]
        assert partition.open_transactions() == [OpenTransaction(1, 0, 0, TIME)]
        assert aborted_in(partition, 0, 4) == [(2, 2)]


async def test_a_late_batch_of_an_aborted_transaction_is_refused(tmp_path: Path) -> None:
    """The hole that raising the epoch closes (KIP-890)."""
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        send(partition, 1)
        mark(partition, 1, 1, commit=False, version=2)
        with pytest.raises(KafkaError) as refused:
            send(partition, 1, 1)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_transaction_that_would_span_two_epochs_is_refused_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        send(partition, 1)
        with pytest.raises(KafkaError) as refused:
            send(partition, 1, epoch=1)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.failure is None
    assert "a transaction of producer 1 and epoch 0 is open from 0" in caplog.text


async def test_transactions_and_the_stable_offset_survive_a_clean_stop(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        append(partition)
        send(partition, 1)
        send(partition, 2)
        mark(partition, 2, 0, commit=False)
    async with running_topics(tmp_path) as topics:
        partition = partition_of(topics)
        assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
        mark(partition, 1, 0, commit=True)
        assert (partition.last_stable_offset, partition.high_watermark) == (5, 5)
        assert aborted_in(partition, 0, 5) == [(2, 2)]


async def test_transactions_and_the_stable_offset_survive_a_kill(tmp_path: Path) -> None:
    async with running_topics(tmp_path, stop_cleanly=False) as topics:
        partition = await one_partition(topics)
        append(partition)
        send(partition, 1)
        send(partition, 2)
        mark(partition, 2, 0, commit=False)
    forget_indexes(tmp_path)
    async with running_topics(tmp_path) as topics:
        partition = partition_of(topics)
        assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
        assert aborted_in(partition, 0, 4) == [(2, 2)]


async def test_the_stable_offset_waits_for_the_fsync_of_the_marker(tmp_path: Path) -> None:
    async with running_topics(tmp_path, FLUSH_EACH) as topics:
        partition = await one_partition(topics)
        await partition.wait_committed(send(partition, 1).next_offset)
        assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
        marked = mark(partition, 1, 0, commit=True)
        assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
        await partition.wait_committed(marked.next_offset)
        assert (partition.last_stable_offset, partition.high_watermark) == (2, 2)


async def test_deleted_records_never_leave_the_stable_offset_below_the_log(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        send(partition, 1, count=20)
        partition.log.delete_records_before(11, wall_ms=TIME)
        assert partition.last_stable_offset == 11
        assert (await fetched(topics, 11)).last_stable_offset == 11


async def test_a_fetch_tells_both_ends_and_reads_committed_ones_up_to_the_stable_one(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        append(partition)
        send(partition, 1)
        append(partition)
        for isolation, expected in ((0, [0, 1, 2]), (COMMITTED, [0])):
            data = await fetched(topics, 0, isolation=isolation)
            assert (data.high_watermark, data.last_stable_offset) == (3, 1)
            assert offsets(data) == expected
        between = await fetched(topics, 2)
        assert (between.error_code, offsets(between), aborted(between)) == (0, [], [])
        beyond = await fetched(topics, 4)
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert aborted(beyond) is None


async def test_a_fetch_lists_exactly_the_aborted_transactions_that_it_has_records_of(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        send(partition, 1, size=1000)
        mark(partition, 1, 0, commit=True)
        send(partition, 2, size=1000)
        send(partition, 3, size=1000)
        mark(partition, 3, 0, commit=False)
        mark(partition, 2, 0, commit=False)
        send(partition, 3, 1, size=1000)
        mark(partition, 3, 0, commit=False)
        assert aborted(await fetched(topics, 0, isolation=0)) is None
        everything = await fetched(topics, 0)
        assert offsets(everything) == list(range(8))
        assert aborted(everything) == [(3, 3), (2, 2), (3, 6)]
        for offset, limit, expected_offsets, expected in (
            (0, 1200, [0, 1], []),
            (0, 2400, [0, 1, 2], [(2, 2)]),
            (0, 3600, [0, 1, 2, 3, 4, 5], [(3, 3), (2, 2)]),
            (4, 1000, [4, 5], [(3, 3), (2, 2)]),
            (5, 1000, [5], [(2, 2)]),
            (6, 1000, [6], [(3, 6)]),
            (7, 1000, [7], [(3, 6)]),
            (8, 1000, [], []),
        ):
            data = await fetched(topics, offset, max_bytes=limit)
            assert (offsets(data), aborted(data)) == (expected_offsets, expected), (offset, limit)


async def test_an_unknown_isolation_level_is_an_invalid_request(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await one_partition(topics)
        for isolation in (-1, 2):
            data = await fetched(topics, 0, isolation=isolation)
            assert data.error_code == ErrorCode.INVALID_REQUEST
            found = await listed(topics, -1, isolation=isolation)
            assert found.error_code == ErrorCode.INVALID_REQUEST


async def test_offsets_of_committed_records_end_at_the_stable_one(tmp_path: Path) -> None:
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        send(partition, 1, timestamp=TIME, transactional=False)
        send(partition, 2, timestamp=TIME + 10)
        send(partition, 1, 1, timestamp=TIME + 20, transactional=False)
        for timestamp, all_records, committed in (
            (-1, 3, 1),
            (-2, 0, 0),
            (-3, 2, -1),
            (-4, 0, 0),
            (TIME, 0, 0),
            (TIME + 5, 1, -1),
            (TIME + 20, 2, -1),
            (TIME + 30, -1, -1),
        ):
            found = await listed(topics, timestamp, isolation=0)
            assert (found.offset, found.error_code) == (all_records, 0), timestamp
            found = await listed(topics, timestamp)
            assert (found.offset, found.error_code) == (committed, 0), timestamp
            assert found.timestamp == -1 or committed >= 0
        mark(partition, 2, 0, commit=False)
        assert (await listed(topics, -1)).offset == 4
        assert (await listed(topics, -3)).offset == 2
        assert (await listed(topics, TIME + 5)).offset == 1


class Parked:
    """A fetch of one partition that waits for more bytes than there are."""

    def __init__(self, topics: TopicManager, offset: int, *, committed: bool, more: int) -> None:
        partition = partition_of(topics)
        self.is_answered = False
        self.read = PartitionRead(0, partition, offset, MIB, committed_only=committed)
        reading = FetchPass([self.read], MIB)
        assert reading.read_at_hand()
        self.operation = DelayedFetch(
            [self.read], bytes_missing=more, read_again=self.take, answer=Later(), owner="me"
        )
        topics._purgatory.try_complete_else_watch(self.operation, self.operation.keys, 1_000)

    def take(self, answer: Later[None]) -> None:
        del answer
        self.is_answered = True


async def test_a_parked_fetch_of_committed_records_is_woken_by_the_marker(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        committed = Parked(topics, 0, committed=True, more=1)
        uncommitted = Parked(topics, 0, committed=False, more=1)
        send(partition, 1, size=500)
        topics._purgatory.drain()
        assert (committed.is_answered, uncommitted.is_answered) == (False, True)
        append(partition)
        topics._purgatory.drain()
        assert not committed.is_answered
        mark(partition, 1, 0, commit=True)
        topics._purgatory.drain()
        assert committed.is_answered


async def test_a_parked_fetch_counts_what_became_stable(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        size = 78 + 73 + 500
        enough = Parked(topics, 0, committed=True, more=size - 20)
        too_little = Parked(topics, 0, committed=True, more=size + 20)
        send(partition, 1, size=500)
        mark(partition, 1, 0, commit=True)
        topics._purgatory.drain()
        assert (enough.is_answered, too_little.is_answered) == (True, False)
        append(partition)
        topics._purgatory.drain()
        assert too_little.is_answered


async def test_a_parked_fetch_is_woken_by_the_end_of_an_earlier_run_s_transaction(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        send(await one_partition(topics), 1, size=500)
    async with running_topics(tmp_path) as topics:
        parked = Parked(topics, 0, committed=True, more=400)
        mark(partition_of(topics), 1, 0, commit=True)
        topics._purgatory.drain()
        assert parked.is_answered


async def test_what_another_thread_reads_ends_at_the_stable_offset_as_well(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        for number in range(10):
            send(partition, 7, number, size=1000)
            mark(partition, 7, 0, commit=number % 2 == 0)
        send(partition, 8)
    async with running_topics(tmp_path) as topics:
        data = await asyncio.wait_for(fetched(topics, 0), 30)
        assert offsets(data) == list(range(20))
        assert aborted(data) == [(7, first) for first in range(2, 20, 4)]
        some = await fetched(topics, 0, max_bytes=4700)
        assert offsets(some) == list(range(8))
        assert aborted(some) == [(7, 2), (7, 6)]


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
        assert partition.reads.at_hand(0, MIB, min_one=True) is not None
        assert partition.reads.at_hand(0, MIB, min_one=True, committed_only=True) is None
        data = await asyncio.wait_for(fetched(topics, 0), 30)
        assert aborted(data) == [(7, 0), (7, 2), (7, 4)]
        assert partition.reads.at_hand(0, MIB, min_one=True, committed_only=True) is not None


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
        assert partition.reads.at_hand(0, MIB, min_one=True, committed_only=True) is None
        data = await asyncio.wait_for(fetched(topics, 0), 30)
        assert aborted(data) == [(7, first) for first in (0, 2, 4, 6)]
        assert partition.reads.at_hand(0, MIB, min_one=True, committed_only=True) is not None
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


async def test_an_index_that_holds_nothing_any_more_goes(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        append(await one_partition(topics))
    index = tmp_path / "t-0" / "00000000000000000000.txnindex"
    index.write_bytes(bytes(transaction_index.ENTRY_BYTES))
    async with running_topics(tmp_path) as topics:
        data = await asyncio.wait_for(fetched(topics, 0), 30)
        assert (offsets(data), aborted(data)) == ([0], [])
    assert index_files(tmp_path) == []


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


async def test_a_read_tells_of_no_more_aborted_transactions_than_are_quickly_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "READ_MAX", 3)
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        send(partition, 8)
        for number in range(10):
            send(partition, 7, number)
            mark(partition, 7, 0, commit=False)
        mark(partition, 8, 0, commit=False)
        told, seen, offset = [], [], 0
        while offset < partition.log.log_end_offset:
            data = await fetched(topics, offset)
            found = aborted(data)
            assert found is not None
            # The long one, and the one that the read ends within, are told of as well.
            assert len(found) <= 3 + 2
            told += [one for one in found if one not in told]
            seen += offsets(data)
            offset = seen[-1] + 1
        assert sorted(told) == [*((7, first) for first in range(1, 20, 2)), (8, 0)]
        assert seen == list(range(22))


async def open_at_once(partition: Partition, count: int) -> None:
    """So many transactions that are aborted when all of them have begun."""
    for producer_id in range(count):
        send(partition, producer_id)
    for producer_id in range(count):
        mark(partition, producer_id, 0, commit=False)


def committed_read(partition: Partition, offset: int, max_bytes: int) -> PartitionRead:
    return PartitionRead(0, partition, offset, max_bytes, committed_only=True)


async def others_turns(reading: FetchPass, disturb: Callable[[], None] | None = None) -> int:
    """Finish it on a clock that its own looks move; how often others had their turn meanwhile.

    `disturb` is called in the third of these.
    """
    done = asyncio.ensure_future(reading.finish(asyncio.Semaphore(1), BusyClock(look_ms=2)))
    turns = 0
    while not done.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 3 and disturb is not None:
            disturb()
    await done
    return turns


async def test_very_many_that_are_open_where_a_read_ends_are_found_and_told_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "AT_ONCE_MAX", 200)
    monkeypatch.setattr(transaction_index, "STEP_ENTRIES", 50)
    monkeypatch.setattr(fetch, "FEW", 50)
    count = 1000
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        await open_at_once(partition, count)
        size = len(partition.reads.read(0, 0, min_one=True))
        for begin, some in ((0, 100), (0, 199), (0, 500), (100, count - 100)):
            read = committed_read(partition, begin, some * size)
            assert FetchPass([read], MIB).read_at_hand() == (some + begin <= 200)
            turns = await others_turns(FetchPass([read], MIB))
            first = begin + len(read.data) // size
            assert read.aborted is not None
            assert [one.first_offset for one in read.aborted] == list(range(first))
            if begin + some > 200:
                # One after each step, of which the first is longer, and after each part of what is
                # told.
                assert turns >= 2 * (first - 128) // 50
        # What nothing is held up by is told at once.
        reading = FetchPass([committed_read(partition, 2 * count - 100, MIB)], MIB)
        assert reading.read_at_hand()


async def test_what_one_long_transaction_keeps_from_being_decided_is_looked_at_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "AT_ONCE_MAX", 200)
    monkeypatch.setattr(transaction_index, "STEP_ENTRIES", 50)
    count = 1000
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        send(partition, 8)
        for number in range(count):
            send(partition, 7, number)
            mark(partition, 7, 0, commit=False)
        mark(partition, 8, 0, commit=False)
        read = committed_read(partition, 0, 1000)
        reading = FetchPass([read], MIB)
        assert not reading.read_at_hand()
        assert await others_turns(reading) > (count - 200) // 50
        told = [(one.producer_id, one.first_offset) for one in read.aborted or ()]
        assert isinstance(read.data, bytes)
        *_, (_, header) = iter_headers(read.data)
        last = header.base_offset
        assert told == [*((7, first) for first in range(1, last + 1, 2)), (8, 0)]


async def test_a_segment_that_goes_away_while_aborted_ones_are_looked_for_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "AT_ONCE_MAX", 200)
    monkeypatch.setattr(transaction_index, "STEP_ENTRIES", 50)
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        await open_at_once(partition, 500)
        read = committed_read(partition, 0, 30_000)

        def disturb() -> None:
            partition.log.roll(wall_ms=TIME)
            partition.log.delete_records_before(partition.log.log_end_offset, wall_ms=TIME)

        await others_turns(FetchPass([read], MIB), disturb)
        assert read.error == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (read.data, read.aborted) == (b"", None)
