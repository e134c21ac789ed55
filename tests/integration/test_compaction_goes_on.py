"""Records and settings with extreme times do not stop the compaction of their log or another."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kohort.protocol.records.batch import split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.requests import fetch_request
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

LONG_MAX = (1 << 63) - 1
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
}

Contents = list[tuple[bytes | None, bytes | None]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, overrides={"log.cleaner.backoff.ms": "50"}) as broker:
        yield broker


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


def now_ms() -> int:
    return int(time.time() * 1000)


def create(client: RawClient, name: str, configs: Mapping[str, str]) -> None:
    given = [m.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = m.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=given
    )
    request = m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    (created,) = client.call(request, 5, m.CreateTopicsResponse).topics
    assert created.error_code == 0, created.error_message


def put(client: RawClient, topic: str, key: bytes, value: bytes | None, timestamp: int) -> None:
    data = m.PartitionProduceData(
        index=0, records=encode_batch([Record(value, key, (), timestamp)])
    )
    request = m.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[m.TopicProduceData(name=topic, partition_data=[data])],
    )
    ((done,),) = [
        one.partition_responses for one in client.call(request, 9, m.ProduceResponse).responses
    ]
    assert done.error_code == 0


def contents(client: RawClient, topic: str) -> Contents:
    """Keys and values of all records of a topic."""
    found: Contents = []
    offset = 0
    while True:
        answer = client.call(fetch_request(topic, offset), 11, m.FetchResponse)
        ((data,),) = [one.partitions for one in answer.responses]
        batches = list(split_batches(bytes(data.records or b"")))
        if not batches:
            return found
        for header, batch in batches:
            found += [(record.key, record.value) for record in decode_records(batch, header)]
            offset = header.next_offset


def roll(client: RawClient, topic: str) -> None:
    """Have the segment closed, by a record after its time; it is compacted without that record."""
    time.sleep(0.1)
    put(client, topic, b"end", b"", now_ms())


@pytest.mark.parametrize(
    ("configs", "timestamp"),
    [
        ({"delete.retention.ms": str(LONG_MAX)}, None),
        # As far in the past as a topic accepts by default: a day and that are beyond 64 bits.
        ({}, -LONG_MAX - 1 + 60_001),
    ],
)
def test_an_extreme_time_of_one_topic_stops_no_compaction(
    broker: BrokerThread, client: RawClient, configs: Mapping[str, str], timestamp: int | None
) -> None:
    create(client, "extreme", {**COMPACTED, **configs})
    create(client, "other", COMPACTED)
    put(client, "extreme", b"gone", b"1", now_ms())
    put(client, "extreme", b"kept", b"2", now_ms())
    put(client, "extreme", b"gone", None, now_ms() + (timestamp or 0))
    roll(client, "extreme")
    wait_until(lambda: (b"gone", b"1") not in contents(client, "extreme"), "compaction of it")
    assert contents(client, "extreme")[:2] == [(b"kept", b"2"), (b"gone", None)]
    # What is compacted afterwards shows that the compactor still works.
    for value in (b"3", b"4"):
        put(client, "other", b"key", value, now_ms())
    roll(client, "other")
    wait_until(lambda: (b"key", b"3") not in contents(client, "other"), "compaction of the other")
    assert (b"key", b"4") in contents(client, "other")
    compaction = broker.broker.services.topics.compaction
    assert broker.call(lambda: (compaction.failure_count, compaction.uncleanable_count)) == (0, 0)
