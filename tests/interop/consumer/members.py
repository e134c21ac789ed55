"""Consumers of one test and the topics that they read."""

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kohort import Consumer, ConsumerRecord, RebalanceListener, TopicPartition
from kohort.client.core.group.base_membership import MemberState
from kohort.client.group.listener import Partitions
from tests.support.clients.confluent_client import (
    admin_client,
    create_partitions,
    create_topics,
)
from tests.support.waiting import wait_until

TIMEOUT_S = 60
"""For what takes a moment on a machine that has nothing else to do."""


class Topics:
    """Topics of one broker, under names of their own, and what it says of groups."""

    def __init__(self, bootstrap: str) -> None:
        self._admin: AdminClient = admin_client(bootstrap)
        # Idempotent, so that a topic whose leader is not there yet gets them in their order.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "enable.idempotence": True,
                "on_delivery": self._check_delivered,
            }
        )
        self._made: list[str] = []

    def create(self, partitions: int = 1, *, name: str | None = None, **config: str) -> str:
        """A new topic; its name."""
        name = name or f"read-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        create_topics(self._admin, topic)
        self._made.append(name)
        return name

    def add_partitions(self, name: str, count: int) -> None:
        """So that it has `count`."""
        create_partitions(self._admin, name, count)
        # The producer may have written to the topic, and remembers how many it had.
        wait_until(
            lambda: (
                len(self._producer.list_topics(name, timeout=10).topics[name].partitions) == count
            ),
            f"{name} has {count} partitions",
        )

    def describe_group(self, group_id: str) -> tuple[str, int]:
        """Its state and how many members it has."""
        described = self._admin.describe_consumer_groups([group_id])[group_id].result(30)
        return described.state.name, len(described.members)

    def delete(self, name: str) -> None:
        self._made.remove(name)
        self._admin.delete_topics([name])[name].result(30)

    def fill(self, name: str, values: Iterable[str | bytes | int], partition: int = 0) -> None:
        """Append one record for each value, with the time at which it was given."""
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode()
            self._producer.produce(name, data, partition=partition)
        assert not self._producer.flush(30)

    def fill_keyed(self, name: str, records: Iterable[tuple[str, str]]) -> None:
        """Append one record for each key and value, where the keys belong."""
        for key, value in records:
            while True:
                try:
                    self._producer.produce(name, value.encode(), key=key.encode())
                except BufferError:
                    # A broker on a busy machine takes them more slowly than they are made.
                    self._producer.poll(0.1)
                else:
                    break
            self._producer.poll(0)
        assert not self._producer.flush(60)

    def fill_at(self, name: str, timestamps: Iterable[int], partition: int = 0) -> None:
        """Append records with these timestamps."""
        for timestamp in timestamps:
            self._producer.produce(
                name, str(timestamp).encode(), partition=partition, timestamp=timestamp
            )
        assert not self._producer.flush(30)

    @staticmethod
    def _check_delivered(error: KafkaError | None, _message: Message) -> None:
        """Raises in `flush` or `poll`."""
        if error is not None:
            raise KafkaException(error)

    def delete_all(self) -> None:
        # Its thread must not outlive the broker.
        del self._producer
        if self._made:
            for future in self._admin.delete_topics(self._made).values():
                future.exception(30)


class Note(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def on_revoked(self, partitions: Partitions) -> None:
        self.calls.append(("revoked", numbers(partitions)))

    def on_assigned(self, partitions: Partitions) -> None:
        self.calls.append(("assigned", numbers(partitions)))

    def on_lost(self, partitions: Partitions) -> None:
        self.calls.append(("lost", numbers(partitions)))


class Members:
    """Consumers that are closed at the end; made with settings that keep tests short."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self._made: list[Consumer] = []

    def make(self, *topics: str, **settings: object) -> Consumer:
        """One that is not started."""
        given: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "retry_backoff_ms": 20,
            **settings,
        }
        if given.get("group_protocol", "classic") == "classic":
            # In the other protocol the broker decides them.
            given.setdefault("heartbeat_interval_ms", 100)
            given.setdefault("partition_assignment_strategy", "cooperative-sticky")
        consumer = Consumer(*topics, **given)
        self._made.append(consumer)
        return consumer

    async def start(
        self, *topics: str, listener: RebalanceListener | None = None, **settings: object
    ) -> Consumer:
        """One that is started, and subscribes if there are topics."""
        consumer = self.make(**settings)
        if topics:
            consumer.subscribe(topics, listener=listener)
        await consumer.start()
        return consumer

    async def settle(self, *consumers: Consumer, partitions: int) -> None:
        """Poll all of them until they share that many partitions, and nothing changes any more."""
        await self.poll_until(consumers, lambda: is_settled(consumers, partitions))

    async def poll_until(
        self, consumers: Sequence[Consumer], condition: Callable[[], bool]
    ) -> list[ConsumerRecord[Any, Any]]:
        """Poll all of them in turn until then; the records that came meanwhile."""
        records: list[ConsumerRecord[Any, Any]] = []
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                records += await self.poll_once(*consumers)
        return records

    async def poll_once(self, *consumers: Consumer) -> list[ConsumerRecord[Any, Any]]:
        """One short poll of each; the records that came."""
        return [
            record
            for consumer in consumers
            for found in (await consumer.poll(0.02)).values()
            for record in found
        ]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        for consumer in self._made:
            with suppress(Exception):
                await consumer.stop(5)


def is_settled(consumers: Collection[Consumer], partitions: int) -> bool:
    """Whether all are members of one generation, with nothing left to do, and each partition has
    one owner.
    """
    shares = [consumer.assignment() for consumer in consumers]
    return (
        all(map(is_at_rest, consumers))
        and len({generation(consumer) for consumer in consumers}) == 1
        and sum(map(len, shares)) == partitions == len(frozenset().union(*shares))
    )


def is_at_rest(consumer: Consumer) -> bool:
    """Whether it is a member and does not mean to join again."""
    assert consumer._lifecycle.engine is not None
    assert consumer._lifecycle.engine.member is not None
    membership = consumer._lifecycle.engine.member.membership
    return (
        membership.state is MemberState.STABLE
        and membership._rejoin is None
        and membership._next is None
    )


def generation(consumer: Consumer) -> int:
    return consumer.group_metadata().generation_id


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord[Any, Any]]:
    """So many records; fails if they do not come."""
    records: list[ConsumerRecord[Any, Any]] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(records) < count:
            for found in (await consumer.poll(0.5, count - len(records))).values():
                records += found
    return records


def values(records: Iterable[ConsumerRecord[Any, Any]]) -> list[str]:
    return [record.value.decode() for record in records]


def numbers(partitions: Iterable[TopicPartition]) -> list[int]:
    return sorted(one.partition for one in partitions)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
