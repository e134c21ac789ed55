"""Markers in a running partition, and the last stable offset that they move."""

from pathlib import Path

import pytest

from kohort.broker.core.partition.producers import ProducerSnapshot
from kohort.broker.core.partition.transactions import OpenTransaction
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.control import ControlType
from tests.support.brokers.running_topics import (
    aborted_in,
    append,
    running_topics,
)
from tests.unit.broker.topics.transactional_partition import (
    MIB,
    TIME,
    fetched,
    mark,
    one_partition,
    partition_of,
    send,
)

FLUSH_EACH = "log.flush.interval.messages=1"


def forget_indexes(directory: Path) -> None:
    paths = list(directory.rglob("*.txnindex"))
    assert paths
    for path in paths:
        path.unlink()


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
