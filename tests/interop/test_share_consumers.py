"""Share consumers of two client libraries: Kafka's own, and librdkafka's.

Where the other tests run against a given broker these run on a real Kafka.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import QUIET, admin_client, create_topics
from tests.support.clients.java_share import Delivered, JavaShareConsumer
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

TOPIC = "shared"
GROUP = "sharing"
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.session.timeout.ms": "45000",
    "group.share.heartbeat.interval.ms": "5000",
}


@pytest.fixture
def broker(
    tmp_path: Path, own_broker_kind: type[KafkaServer | KohortServer]
) -> Iterator[ServerProcess]:
    """A broker with short locks, a topic, and a group that begins at its first record."""
    with own_broker_kind(tmp_path, overrides=SETTINGS) as server:
        admin = admin_client(server.bootstrap)
        create_topics(admin, NewTopic(TOPIC, 1, 1))
        begin = ConfigEntry(
            "share.auto.offset.reset",
            "earliest",
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[begin])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(30)
        yield server


def produce(broker: ServerProcess, values: Sequence[str], **config: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **config, **QUIET})
    for value in values:
        producer.produce(TOPIC, value)
    assert not producer.flush(30)


def polled(poll: Callable[[], Sequence[Delivered]], count: int) -> list[Delivered]:
    """Poll until there are so many records."""
    records: list[Delivered] = []

    def is_enough() -> bool:
        records.extend(poll())
        return len(records) >= count

    wait_until(is_enough, f"{count} records", timeout_s=30)
    return records


def offsets(records: Sequence[Delivered]) -> list[tuple[int, int]]:
    """(offset, delivery count) of each record."""
    return [(record.offset, record.delivery_count) for record in records]


@contextmanager
def java_consumer(
    process: JavaProcess, broker: ServerProcess, **config: str | int
) -> Iterator[JavaShareConsumer]:
    consumer = JavaShareConsumer(
        process,
        broker.bootstrap,
        GROUP,
        TOPIC,
        **{"share_acknowledgement_mode": "explicit"} | config,
    )
    try:
        yield consumer
    finally:
        consumer.close()


def test_java_accepts_releases_rejects_and_renews(
    broker: ServerProcess, java_clients: JavaProcess
) -> None:
    produce(broker, [str(number) for number in range(8)])
    with java_consumer(java_clients, broker) as consumer:
        records = polled(consumer.poll, 8)
        assert offsets(records) == [(number, 1) for number in range(8)]
        assert consumer.lock_timeout_ms == 2_000
        consumer.acknowledge(records[:4])
        consumer.acknowledge(records[4:6], "release")
        consumer.acknowledge(records[6:7], "reject")
        consumer.acknowledge(records[7:], "renew")
        assert consumer.commit() == {f"{TOPIC}-0": ""}
        # The client returns a renewed record again, with the count of its delivery.
        again = polled(consumer.poll, 1)
        assert offsets(again) == [(7, 1)]
        consumer.acknowledge(again)
        assert consumer.commit() == {f"{TOPIC}-0": ""}
        released = polled(consumer.poll, 2)
        assert offsets(released) == [(4, 2), (5, 2)]
        consumer.acknowledge(released)
        assert consumer.commit() == {f"{TOPIC}-0": ""}
        assert consumer.poll(1_000) == []


def test_records_of_a_silent_member_go_to_another(
    broker: ServerProcess, java_clients: JavaProcess
) -> None:
    produce(broker, ["a", "b", "c"])
    with (
        java_consumer(java_clients, broker) as silent,
        java_consumer(java_clients, broker) as other,
    ):
        taken = polled(silent.poll, 3)
        assert offsets(polled(other.poll, 3)) == [(0, 2), (1, 2), (2, 2)]
        silent.acknowledge(taken)
        assert silent.commit() == {f"{TOPIC}-0": "InvalidRecordStateException"}


def test_records_of_a_member_that_closes_go_to_another(
    broker: ServerProcess, java_clients: JavaProcess
) -> None:
    produce(broker, ["a", "b", "c"])
    with java_consumer(java_clients, broker) as closing:
        accepted, *_ = polled(closing.poll, 3)
        closing.acknowledge([accepted])
    with java_consumer(java_clients, broker) as other:
        assert offsets(polled(other.poll, 2)) == [(1, 2), (2, 2)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_java_gets_at_most_its_limit_of_records(
    broker: ServerProcess, java_clients: JavaProcess, codec: str
) -> None:
    produce(broker, [str(number) for number in range(20)], **{"compression.type": codec})
    with java_consumer(
        java_clients, broker, share_acquire_mode="record_limit", max_poll_records=6
    ) as consumer:
        seen: list[int] = []
        while len(seen) < 20:
            records = polled(consumer.poll, 1)
            assert len(records) <= 6
            seen += [record.offset for record in records]
            consumer.acknowledge(records)
            assert consumer.commit() == {f"{TOPIC}-0": ""}
        assert seen == list(range(20))


def confluent_poll(consumer: ShareConsumer) -> list[Message]:
    messages = list(consumer.poll(1.0))
    assert all(message.error() is None for message in messages)
    return messages


def test_librdkafka_accepts_releases_and_rejects(broker: ServerProcess) -> None:
    produce(broker, [str(number) for number in range(6)])
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": GROUP,
        "share.acknowledgement.mode": "explicit",
        **QUIET,
    }
    with ShareConsumer(config) as consumer:
        consumer.subscribe([TOPIC])
        seen: list[int | None] = []
        deadline = time.monotonic() + 30
        while seen != [0, 1, 2, 3, 4, 5, 3]:
            assert time.monotonic() < deadline, seen
            for message in confluent_poll(consumer):
                kind = AcknowledgeType.ACCEPT
                if message.offset() not in seen and message.offset() == 3:
                    kind = AcknowledgeType.RELEASE
                elif message.offset() == 4:
                    kind = AcknowledgeType.REJECT
                seen.append(message.offset())
                consumer.acknowledge(message, kind)
            assert not any(consumer.commit_sync(10.0).values())
        assert confluent_poll(consumer) == []


def test_rejected_records_become_dead_letters(broker: ServerProcess) -> None:
    letters = "dlq.shared"
    admin = admin_client(broker.bootstrap)
    create_topics(
        admin, NewTopic(letters, 1, 1, config={"errors.deadletterqueue.group.enable": "true"})
    )
    configs = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (
            ("errors.deadletterqueue.topic.name", letters),
            ("errors.deadletterqueue.copy.record.enable", "true"),
        )
    ]
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=configs)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)
    produce(broker, [str(number) for number in range(4)])
    config = {"bootstrap.servers": broker.bootstrap, **QUIET}
    with ShareConsumer(
        {**config, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    ) as consumer:
        consumer.subscribe([TOPIC])
        seen = 0
        deadline = time.monotonic() + 30
        while seen < 4:
            assert time.monotonic() < deadline, seen
            for message in confluent_poll(consumer):
                seen += 1
                rejects = message.offset() in {1, 3}
                kind = AcknowledgeType.REJECT if rejects else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, kind)
            assert not any(consumer.commit_sync(10.0).values())
    reader = Consumer({**config, "group.id": "reader", "auto.offset.reset": "earliest"})
    reader.subscribe([letters])
    found: list[tuple[object, object]] = []
    while len(found) < 2:
        assert time.monotonic() < deadline, found
        letter = reader.poll(1.0)
        if letter is not None:
            assert letter.error() is None
            found.append((letter.value(), dict(letter.headers() or {})["__dlq.errors.offset"]))
    reader.close()
    assert found == [(b"1", b"1"), (b"3", b"3")]


def test_state_survives_the_end_of_the_process(
    broker: ServerProcess, java_clients: JavaProcess
) -> None:
    produce(broker, [str(number) for number in range(10)])
    with java_consumer(java_clients, broker) as consumer:
        records = polled(consumer.poll, 10)
        consumer.acknowledge(records[2:4])
        consumer.acknowledge(records[4:5], "reject")
        consumer.acknowledge(records[5:6], "release")
        assert consumer.commit() == {f"{TOPIC}-0": ""}
        broker.kill()
        broker.start()
        # The locks did not survive, so these acknowledgements come too late.
        consumer.acknowledge([*records[:2], *records[6:]])
        assert consumer.commit() != {f"{TOPIC}-0": ""}
        later = sorted(offsets(polled(consumer.poll, 7)))
        assert later == [(0, 1), (1, 1), (5, 2), (6, 1), (7, 1), (8, 1), (9, 1)]
