"""Topics for the pipeline's tests: written, and read as a Kafka client reads them."""

import uuid
from collections.abc import Iterable
from typing import Any, TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.clients.confluent_client import create_partitions, create_topics
from tests.support.clients.whole_topics import read_whole
from tests.support.waiting import wait_until

Row: TypeAlias = tuple[Any, ...]
"""(partition, offset, timestamp in ms, key, value, headers)."""

_QUIET: dict[str, Any] = {"log_level": 0}
"""Brokers come and go in these tests; librdkafka would tell of each."""


class Topics:
    """Topics of one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})

    def create(self, partitions: int = 1, *, name: str | None = None, **config: str) -> str:
        """A topic of that name, or of one that no other topic has."""
        chosen = name or f"pipeline-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        # The records are of long ago, and are to stay.
        settings.setdefault("retention.ms", "-1")
        topic = NewTopic(chosen, num_partitions=partitions, replication_factor=1, config=settings)
        create_topics(self.admin, topic)
        return chosen

    def delete(self, name: str) -> None:
        _wait(self.admin.delete_topics([name]).values())
        wait_until(lambda: name not in self.admin.list_topics(timeout=10).topics, f"{name} to go")

    def add_partitions(self, name: str, total: int) -> None:
        create_partitions(self.admin, name, total)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        _wait(self.admin.delete_records([TopicPartition(name, partition, before)]).values())

    def produce(
        self,
        name: str,
        count: int,
        *,
        partitions: int = 1,
        size: int = 100,
        first: int = 0,
        json_but_every: int = 1,
    ) -> None:
        """Numbered records, the n-th to partition n modulo `partitions`; all are acknowledged.

        Every so manieth value is no JSON.
        """
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **_QUIET})
        for number in range(first, first + count):
            producer.produce(
                name,
                str(number).encode().ljust(size, b" " if number % json_but_every else b"."),
                key=None if number % 10 == 7 else f"key {number % 5}".encode(),
                partition=number % partitions,
                timestamp=1_700_000_000_000 + number,
                headers=[("number", str(number).encode()), ("twice", b"1"), ("twice", None)],
            )
            if number % 500 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def read(self, name: str) -> list[Row]:
        """All that is in the topic, by partition and offset."""
        numbers = self.admin.list_topics(name, timeout=10).topics[name].partitions
        assert numbers, f"{name} has no partitions"
        places = [(name, number) for number in numbers]
        rows: list[Row] = []
        for place, message in read_whole(self.bootstrap, places, settings=_QUIET):
            headers = tuple(tuple(header) for header in message.headers() or [])
            row = (message.timestamp()[1], message.key(), message.value(), headers)
            rows.append((place.partition, place.offset, *row))
        return in_order(rows)

    def committed(self, group: str, name: str) -> dict[int, int]:
        """What a group has committed, by partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, **_QUIET})
        try:
            partitions = self.admin.list_topics(name, timeout=10).topics[name].partitions
            asked = [TopicPartition(name, index) for index in partitions]
            return {one.partition: one.offset for one in consumer.committed(asked, timeout=20)}
        finally:
            consumer.close()


def in_order(rows: Iterable[Row]) -> list[Row]:
    """By partition, offset and time: topics of the same name may have the same offsets."""
    return sorted(rows, key=lambda row: row[:3])


def _wait(futures: Iterable[Any]) -> None:
    for future in futures:
        future.result(30)
