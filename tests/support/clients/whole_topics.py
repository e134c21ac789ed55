"""Topics as librdkafka reads them, from their beginnings to the ends that they have now."""

import time
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

Isolation = Literal["read_uncommitted", "read_committed"]


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


def read_whole(
    bootstrap: str,
    partitions: Collection[tuple[str, int]],
    isolation: Isolation = "read_uncommitted",
    *,
    timeout_s: float = 120,
    settings: dict[str, Any] | None = None,
) -> Iterator[tuple[Place, Message]]:
    """Yield what is in these partitions, by topic and number; fails if it takes longer.

    Each is read up to its high watermark, so this fails, too, where a transaction that has not
    ended holds readers of committed records back. One consumer reads all partitions together: to
    wait for each on its own, or for more than there is, takes longer than what is tested.
    """
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        **(settings or {}),
    }
    consumer = Consumer(config)
    try:
        begins = _offsets(bootstrap, partitions, OffsetSpec.earliest())
        ends = _offsets(bootstrap, partitions, OffsetSpec.latest())
        unread = {place: end for place, end in ends.items() if begins[place] < end}
        consumer.assign([TopicPartition(*place, begins[place]) for place in partitions])
        deadline_s = time.monotonic() + timeout_s
        while unread:
            assert time.monotonic() < deadline_s, f"not read to their ends: {unread}"
            for message in consumer.consume(10_000, timeout=0.2):
                place, error = _place_of(message), message.error()
                # A record behind the end has come since.
                end = unread.get(place[:2], -1)
                if error is None and place.offset < end:
                    yield place, message
                elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                # What tells of the end has the offset behind all that was read.
                if place.offset + (error is None) >= end >= 0:
                    del unread[place[:2]]
    finally:
        consumer.close()


def _offsets(
    bootstrap: str, partitions: Collection[tuple[str, int]], which: OffsetSpec
) -> dict[tuple[str, int], int]:
    """The offsets without regard to transactions; a consumer of committed records is told its own
    end, which no transaction holds back.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = {TopicPartition(*place): which for place in partitions}
    found = admin.list_offsets(asked, request_timeout=60)
    return {(one.topic, one.partition): told.result(60).offset for one, told in found.items()}


def _place_of(message: Message) -> Place:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Place(topic, partition, offset)
