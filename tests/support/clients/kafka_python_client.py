"""kafka-python."""

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConnectionError

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


class KafkaPythonClient(Client):
    name = "kafka-python"

    def _produce(
        self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            max_request_size=MAX_REQUEST_BYTES,
            linger_ms=5,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            for future in sent:
                future.get(60)
        finally:
            producer.close()

    def consume(
        self, topic: str, count: int, *, timeout_s: float = CONSUMED_WITHIN_S
    ) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + timeout_s
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        try:
            partitions = _partitions(consumer, topic)
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while len(records) < count and time.monotonic() < deadline:
                records += records_in(consumer.poll(100))
        finally:
            consumer.close()
        return records

    def join(self, group: str, topic: str, seat: Seat = ANY_SEAT) -> "KafkaPythonMember":
        return KafkaPythonMember(self.bootstrap, group, topic, seat)


class KafkaPythonMember(ThreadMember):
    def __init__(self, bootstrap: str, group: str, topic: str, seat: Seat) -> None:
        self._config: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            # Commits before partitions are given up, which its listeners cannot do.
            "enable_auto_commit": True,
            "auto_commit_interval_ms": 60_000,
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
        consumer = KafkaConsumer(**self._config)
        consumer.subscribe([self._topic], listener=_Listener(self))
        try:
            while not leaving.is_set():
                self.took(records_in(_poll(consumer)))
                self.holds({partition.partition for partition in consumer.assignment()})
        finally:
            consumer.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # It has no types.
    """Tells at once what the poll is still under way that brought it."""

    def __init__(self, member: ThreadMember) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._member.holds({partition.partition for partition in assigned})

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        pass


def _poll(consumer: KafkaConsumer) -> dict[TopicPartition, list[Any]]:
    try:
        # A poll that gives up in the middle of joining can lose the assignment.
        timeout_ms = 500 if consumer.assignment() else 3_000
        found: dict[TopicPartition, list[Any]] = consumer.poll(timeout_ms)
    except KafkaConnectionError:
        # Raised while no broker can be reached; the next poll tries again.
        return {}
    return found


def _partitions(consumer: KafkaConsumer, topic: str) -> list[TopicPartition]:
    while not (found := consumer.partitions_for_topic(topic)):
        time.sleep(0.05)
    return [TopicPartition(topic, partition) for partition in sorted(found)]
