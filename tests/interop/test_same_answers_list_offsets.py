"""ListOffsets and OffsetForLeaderEpoch find the offsets that Kafka finds."""

import time

import pytest

from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.record import Record
from tests.interop.same_answers import differences
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import (
    NOWHERE,
    TIME_MS,
    Topic,
    batch,
    create_topic,
    offsets_request,
    produce,
)
from tests.support import messages as m

VERSIONS = range(1, 12)
SPECIAL = range(-8, 0)
LARGEST = -3


def timed(*offsets_ms: int, codec: CompressionType = CompressionType.NONE) -> bytes:
    """A batch with records at these times after TIME_MS."""
    records = [Record(b"value", timestamp=TIME_MS + after) for after in offsets_ms]
    return batch(*records, codec=codec)


@pytest.fixture
def filled(pair: Pair) -> Topic:
    """Records of the times 0, 10, ..., equal ones, and such that go back; partition 1 is empty."""
    topic = create_topic(pair, partitions=2)
    times = [(0, 10, 20), (30,), (30, 30, 40), (35, 25, 40), (40,), (5, 90, 60), (70, 80)]
    produce(pair, topic, *(timed(*one) for one in times))
    return topic


def test_special_times(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        for timestamp in SPECIAL:
            pair.ask(offsets_request(filled, timestamp, 0, 1), version)


def test_lookups_by_time(pair: Pair, filled: Topic) -> None:
    for version in (1, 4, 7, 11):
        for after in (*range(-5, 100, 5), 10**9):
            pair.ask(offsets_request(filled, TIME_MS + after, 0, 1), version)
        for timestamp in (0, 1, 2**62):
            pair.ask(offsets_request(filled, timestamp, 0, 1), version)


@pytest.mark.parametrize("codec", [codec for codec in CompressionType if codec])
def test_lookups_by_time_in_compressed_batches(pair: Pair, codec: CompressionType) -> None:
    topic = create_topic(pair)
    produce(
        pair,
        topic,
        timed(0, 10, 20, codec=codec),
        timed(20, 20, 20, codec=codec),
        timed(15, 50, 40, 50, codec=codec),
    )
    for version in (1, 7, 11):
        for after in range(-5, 60, 5):
            pair.ask(offsets_request(topic, TIME_MS + after), version)
    for version in range(7, 12):
        pair.ask(offsets_request(topic, -3), version)


def test_records_without_a_time(pair: Pair) -> None:
    topic = create_topic(pair)
    produce(pair, topic, batch(Record(b"value"), Record(b"value")))
    for version in VERSIONS:
        for timestamp in (*SPECIAL, 0, TIME_MS):
            differs = (
                differences.WITHOUT_TIMESTAMPS if timestamp == LARGEST and version >= 7 else None
            )
            pair.ask(offsets_request(topic, timestamp), version, differs=differs)
    produce(pair, topic, timed(0))
    for version in VERSIONS:
        for timestamp in (*SPECIAL, 0, TIME_MS, TIME_MS + 1):
            pair.ask(offsets_request(topic, timestamp), version)


def test_times_that_the_broker_set(pair: Pair) -> None:
    topic = create_topic(pair, configs={"message.timestamp.type": "LogAppendTime"})
    produce(pair, topic, timed(0, 10))
    # Of two batches in one millisecond the first would be the latest, and only on the quicker side.
    time.sleep(0.01)
    produce(pair, topic, timed(5, 5, codec=CompressionType.LZ4))
    for version in VERSIONS:
        for timestamp in (*SPECIAL, 0, TIME_MS, 2**62):
            pair.ask(offsets_request(topic, timestamp), version)


def test_several_segments(pair: Pair) -> None:
    topic = create_topic(pair, configs={"segment.bytes": "1048576", "index.interval.bytes": "0"})
    for number in range(6):
        records = [
            Record(b"x" * 100_000, timestamp=TIME_MS + 100 * number + 10 * index)
            for index in range(4)
        ]
        produce(pair, topic, batch(*records))
    for version in (1, 7, 11):
        for timestamp in (*SPECIAL, *range(TIME_MS - 10, TIME_MS + 600, 15)):
            pair.ask(offsets_request(topic, timestamp), version)


def test_after_records_were_deleted(pair: Pair, filled: Topic) -> None:
    for offset in (2, 5, 16):
        asked = m.DeleteRecordsTopic(
            name=filled.name,
            partitions=[m.DeleteRecordsPartition(partition_index=0, offset=offset)],
        )
        pair.ask(m.DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), 2)
        for version in (1, 7, 8, 11):
            for timestamp in (*SPECIAL, *range(TIME_MS, TIME_MS + 100, 10)):
                is_gone = offset == 16 and timestamp == LARGEST and version >= 7
                differs = differences.DELETED_RECORDS if is_gone else None
                pair.ask(offsets_request(filled, timestamp), version, differs=differs)


def test_isolation_and_replicas(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        for timestamp in (-1, TIME_MS):
            for replica_id in (-1, -2):
                request = offsets_request(filled, timestamp)
                request.replica_id = replica_id
                pair.ask(request, version)
                if version >= 2:
                    request.isolation_level = 1
                    pair.ask(request, version)


def test_epochs(pair: Pair, filled: Topic) -> None:
    for version in range(4, 12):
        for epoch in (-2, -1, 0, 1, 7):
            for timestamp in (-1, -2, TIME_MS):
                request = offsets_request(filled, timestamp, 0, 1, current_leader_epoch=epoch)
                pair.ask(request, version)


def test_what_is_not_there(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        pair.ask(offsets_request(filled, -1, 0, 2, -1), version)
        request = offsets_request(NOWHERE, -1)
        request.topics += offsets_request(filled, -1).topics
        pair.ask(request, version)
        request.topics = []
        pair.ask(request, version)


def test_a_partition_twice(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        pair.ask(offsets_request(filled, -1, 0, 1, 0), version)
        request = offsets_request(filled, -1)
        request.topics += offsets_request(filled, -2).topics
        pair.ask(request, version)


def epochs_request(
    topic: Topic, current_epoch: int, epoch: int, replica_id: int
) -> m.OffsetForLeaderEpochRequest:
    asked = [
        m.OffsetForLeaderPartition(
            partition=index, current_leader_epoch=current_epoch, leader_epoch=epoch
        )
        for index in (0, 1, 2, -1)
    ]
    topics = [
        m.OffsetForLeaderTopic(topic=name, partitions=asked) for name in (topic.name, NOWHERE.name)
    ]
    return m.OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics)


def test_the_ends_of_leader_epochs(pair: Pair, filled: Topic) -> None:
    for version in (2, 3, 4):
        for current_epoch in (-2, -1, 0, 1):
            for epoch in (-2, -1, 0, 1, 5):
                for replica_id in (-1, -2):
                    request = epochs_request(filled, current_epoch, epoch, replica_id)
                    is_odd = epoch == -2 and current_epoch in {-1, 0}
                    differs = differences.NEGATIVE_EPOCH if is_odd else None
                    pair.ask(request, version, differs=differs)
        pair.ask(m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[]), version)
