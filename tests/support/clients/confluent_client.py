"""confluent-kafka: the current librdkafka."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.support.clients.model import (
    ANY_SEAT,
    CONSUMED_WITHIN_S,
    MAX_REQUEST_BYTES,
    Client,
    Codec,
    Isolation,
    Record,
    Seat,
)
from tests.support.clients.threads import ThreadMember
from tests.support.waiting import wait_until

QUIET = {"log_level": 0}
"""What goes wrong is in errors and exceptions; the library would print it a second time, and the
loss of a broker that a test has stopped long after it, behind the summary of all tests."""


LEFT_BEHIND = {KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
"""How a commit is refused whose member has not heard yet of the generation that it is in."""


def admin_client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


def create_topics(admin: AdminClient, *topics: NewTopic) -> None:
    """Create topics, and wait until each partition's leader has its log."""
    for created in admin.create_topics(list(topics)).values():
        created.result(30)
    await_leaders(admin, {topic.topic: topic.num_partitions for topic in topics})


def create_partitions(admin: AdminClient, topic: str, total: int) -> None:
    """Give a topic partitions until it has `total`, and wait for their leaders."""
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)
    await_leaders(admin, {topic: total})


def await_leaders(admin: AdminClient, partitions: Mapping[str, int]) -> None:
    """Wait until the leaders of so many partitions of each topic have their logs.

    A real Kafka answers when its controller has a topic, a moment before its broker has. librdkafka
    sends several batches at once; where the first is refused by a leader that is not there yet and
    the second is not, the first is told to the producer as delivered, idempotent or not, and was
    never written: Kafka takes whatever number a producer's first batch in a partition has.
    """
    ends = {
        TopicPartition(topic, number): OffsetSpec.latest()
        for topic, total in partitions.items()
        for number in range(total)
    }

    def are_led() -> bool:
        found = admin.list_offsets(ends, request_timeout=10).values()
        if all(future.exception(20) is None for future in found):
            return True
        # One that once heard of no leaders remembers it and asks no more: it is made to ask.
        admin.list_topics(timeout=10)
        return False

    wait_until(are_led, f"leaders of {dict(partitions)}")


class ConfluentClient(Client):
    name = "confluent"

    def _produce(
        self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool
    ) -> None:
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": "all",
                "message.max.bytes": MAX_REQUEST_BYTES,
                "linger.ms": 5,
            }
        )
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        for record in records:
            optional: dict[str, Any] = {}
            if record.partition is not None:
                optional["partition"] = record.partition
            if record.timestamp_ms is not None:
                optional["timestamp"] = record.timestamp_ms
            producer.produce(
                topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=delivered,
                **optional,
            )
            producer.poll(0)
        assert producer.flush(60) == 0, "messages were left unsent"
        assert not failures, failures

    def consume(
        self, topic: str, count: int, *, timeout_s: float = CONSUMED_WITHIN_S
    ) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + timeout_s
        consumer = self._reader()
        try:
            partitions = _partitions(consumer, topic)
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            while len(records) < count and time.monotonic() < deadline:
                records += _records(consumer.consume(500, 0.1))
        finally:
            consumer.close()
        return records

    def read_to_end(self, topic: str, isolation: Isolation) -> list[Record]:
        """All that a reader of this level sees now."""
        records: list[Record] = []
        consumer = self._reader(isolation)
        try:
            partitions = _partitions(consumer, topic)
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            ahead: set[int | None] = {*partitions}
            while ahead:
                found = consumer.consume(500, 0.1)
                records += _records([one for one in found if one.error() is None])
                for one in found:
                    if (error := one.error()) is not None:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        ahead.discard(one.partition())
        finally:
            consumer.close()
        return records

    def join(self, group: str, topic: str, seat: Seat = ANY_SEAT) -> "ConfluentMember":
        return ConfluentMember(self.bootstrap, group, topic, seat)

    def _reader(self, isolation: Isolation | None = None) -> Consumer:
        """With an isolation level, one that is told where each partition ends."""
        told = {} if isolation is None else {"enable.partition.eof": True}
        return Consumer(
            {
                **QUIET,
                "bootstrap.servers": self.bootstrap,
                # The library wants a group id even where no group is used.
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation or "read_committed",
                **told,
            }
        )


class ConsumerProtocolClient(ConfluentClient):
    """The same library with the group protocol of KIP-848."""

    name = "confluent-consumer"

    def join(self, group: str, topic: str, seat: Seat = ANY_SEAT) -> "ConfluentMember":
        return super().join(group, topic, replace(seat, uses_consumer_protocol=True))


class ConfluentMember(ThreadMember):
    def __init__(self, bootstrap: str, group: str, topic: str, seat: Seat) -> None:
        self._config: dict[str, str | int | bool] = {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if seat.uses_consumer_protocol:
            self._config["group.protocol"] = "consumer"
        else:
            self._config |= {
                "partition.assignment.strategy": seat.strategy,
                "heartbeat.interval.ms": 300,
                "session.timeout.ms": seat.session_timeout_ms,
            }
        if seat.client_id is not None:
            self._config["client.id"] = seat.client_id
        if seat.instance_id is not None:
            self._config["group.instance.id"] = seat.instance_id
        self._topic = topic
        super().__init__()

    def poll_until(self, leaving: threading.Event) -> None:
        consumer = Consumer(self._config)
        consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        try:
            while not leaving.is_set():
                self.took(_records(consumer.consume(500, 0.05)))
        finally:
            consumer.close()

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.gains({partition.partition for partition in partitions})

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [place for place in consumer.position(partitions) if place.offset >= 0]
        if places:
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                # Closed amid a rebalance: its JoinGroup is on the way or answered, and it commits
                # for the generation before. What that leaves uncommitted is read once more.
                if error.args[0].code() not in LEFT_BEHIND:
                    raise
        self.gives_up({partition.partition for partition in partitions})

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The group has given them to somebody else, so there is nothing to commit any more."""
        self.gives_up({partition.partition for partition in partitions})


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    return sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)


def _records(messages: list[Message]) -> list[Record]:
    for message in messages:
        assert message.error() is None, message.error()
    return [
        Record(
            value=message.value(),
            key=message.key(),
            headers=_headers(message),
            timestamp_ms=message.timestamp()[1],
            partition=message.partition(),
            offset=message.offset(),
        )
        for message in messages
    ]


def _headers(message: Message) -> tuple[tuple[str, bytes], ...]:
    headers: Any = message.headers() or ()  # Typed as what may be sent, which is more.
    return tuple(headers)
