"""aiokafka, each call in an event loop of its own."""

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError

from tests.support.clients.model import (
    ANY_SEAT,
    CONSUMED_WITHIN_S,
    MAX_REQUEST_BYTES,
    Client,
    Codec,
    Record,
    Seat,
    records_in,
)
from tests.support.clients.threads import ThreadMember


class AiokafkaClient(Client):
    name = "aiokafka"

    def _produce(
        self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool
    ) -> None:
        asyncio.run(self._send(topic, records, codec, idempotent))

    async def _send(
        self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool
    ) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            max_request_size=MAX_REQUEST_BYTES,
            linger_ms=5,
        )
        async with producer:
            sent = [
                await producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp_ms,
                    partition=record.partition,
                )
                for record in records
            ]
            await asyncio.gather(*sent)

    def consume(
        self, topic: str, count: int, *, timeout_s: float = CONSUMED_WITHIN_S
    ) -> list[Record]:
        return asyncio.run(self._consume(topic, count, timeout_s))

    async def _consume(self, topic: str, count: int, timeout_s: float) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + timeout_s
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
            partitions = await _partitions(consumer, topic)
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            while len(records) < count and time.monotonic() < deadline:
                records += records_in(await consumer.getmany(timeout_ms=100))
        return records

    def join(self, group: str, topic: str, seat: Seat = ANY_SEAT) -> "AiokafkaMember":
        return AiokafkaMember(self.bootstrap, group, topic, seat)


class AiokafkaMember(ThreadMember):
    def __init__(self, bootstrap: str, group: str, topic: str, seat: Seat) -> None:
        self._config: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "partition_assignment_strategy": (RangePartitionAssignor,),
            "heartbeat_interval_ms": 300,
            "session_timeout_ms": seat.session_timeout_ms,
            "group_instance_id": seat.instance_id,
        }
        if seat.client_id is not None:
            self._config["client_id"] = seat.client_id
        self._topic = topic
        super().__init__()

    def poll_until(self, leaving: threading.Event) -> None:
        asyncio.run(self._poll_until(leaving))

    async def _poll_until(self, leaving: threading.Event) -> None:
        consumer = AIOKafkaConsumer(**self._config)
        consumer.subscribe([self._topic], listener=_CommitBeforeRevocation(consumer))
        async with consumer:
            while not leaving.is_set():
                # Gives nothing between a revocation's commit and the new assignment.
                self.took(records_in(await consumer.getmany(timeout_ms=50)))
                self.holds({partition.partition for partition in consumer.assignment()})
                await asyncio.sleep(0)
            if consumer.assignment():
                # Amid a rebalance it is refused. Then all was committed before the revocation.
                with suppress(CommitFailedError):
                    await consumer.commit()


class _CommitBeforeRevocation(ConsumerRebalanceListener):  # type: ignore[misc]  # Untyped base.
    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        if revoked:
            await self._consumer.commit()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        pass


async def _partitions(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    await consumer._client.force_metadata_update()
    consumer._client.set_topics([topic])
    while not (found := consumer.partitions_for_topic(topic)):
        await consumer._client.force_metadata_update()
    return [TopicPartition(topic, partition) for partition in sorted(found)]
