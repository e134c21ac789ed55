"""A broker that goes away under our consumer and comes back: all is read, and nothing raised."""

import asyncio
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from kohort import Consumer, TopicPartition, errors
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record

RECORDS = 50

SHORT_S, LONG_S = 3, 20
ANSWERS_AGAIN = "the cluster is reachable again"

SCENES = [
    pytest.param(KohortServer, False, SHORT_S, id="kohort stopped"),
    pytest.param(KohortServer, True, SHORT_S, id="kohort killed"),
    # A real Kafka takes its time to start, and one that is killed is also in consumer/test_outages.
    pytest.param(KafkaServer, True, SHORT_S, id="kafka killed", marks=pytest.mark.long),
    *(
        pytest.param(kind, dies, LONG_S, marks=pytest.mark.long)
        for kind in (KohortServer, KafkaServer)
        for dies in (False, True)
    ),
]


def produce(server: KohortServer | KafkaServer, topic: str, begin: int) -> None:
    records = [Record(b"%d" % number) for number in range(begin, begin + RECORDS)]
    ConfluentClient(server.bootstrap).produce(topic, records)


def prepare(server: KohortServer | KafkaServer, topic: str) -> None:
    server.start()
    admin = admin_client(server.bootstrap)
    create_topics(admin, NewTopic(topic, 1, 1))
    produce(server, topic, 0)


@pytest.mark.parametrize(("kind", "dies", "absence_s"), SCENES)
async def test_a_consumer_outlives_its_broker(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: type[KohortServer | KafkaServer],
    dies: bool,
    absence_s: int,
) -> None:
    name = f"outage-{uuid.uuid4().hex[:12]}"
    # Who asks first waits until all are made.
    server = kind(tmp_path, overrides={"offsets.topic.num.partitions": "5"})
    seen: Counter[bytes] = Counter()
    # A Kafka that was killed may not know the member any more, and then the commits decide.
    may_forget = dies and kind is KafkaServer

    async def poll(consumer: Consumer) -> None:
        for records in (await consumer.poll(0.2)).values():
            seen.update(record.value for record in records)

    async def read(consumer: Consumer, count: int) -> None:
        while len(seen) < count:
            await poll(consumer)

    async def commit_all(consumer: Consumer) -> None:
        try:
            await consumer.commit()
        except errors.CommitFailedError:
            if not may_forget:
                raise
            # It joins again by polling, reads again what is not committed, and commits by itself.
            while await consumer.committed(TopicPartition(name, 0)) != 2 * RECORDS:
                await poll(consumer)

    async with asyncio.timeout(absence_s + 180):
        await asyncio.to_thread(prepare, server, name)
        try:
            async with Consumer(
                name,
                bootstrap_servers=server.bootstrap,
                group_id=name,
                auto_offset_reset="earliest",
                session_timeout_ms=6_000,
                heartbeat_interval_ms=500,
                auto_commit_interval_ms=100,
            ) as consumer:
                await read(consumer, RECORDS)
                if dies:
                    # The last one by itself may not have got there.
                    await consumer.commit()
                await asyncio.to_thread(server.kill if dies else server.stop)
                # An application goes on polling, and gets nothing.
                away = asyncio.get_running_loop().time() + absence_s
                while asyncio.get_running_loop().time() < away:
                    assert await consumer.poll(0.2) == {}
                await asyncio.to_thread(server.start)
                await asyncio.to_thread(produce, server, name, RECORDS)
                await read(consumer, 2 * RECORDS)
                await commit_all(consumer)
                assert await consumer.committed(TopicPartition(name, 0)) == 2 * RECORDS
                # Metadata is asked for in its own time; reading and commits can be quicker.
                while not (consumer.health().is_healthy and ANSWERS_AGAIN in caplog.text):
                    await consumer.poll(0.1)
        finally:
            await asyncio.to_thread(server.kill)
    assert "no broker can be reached" in caplog.text
    # Its positions were kept or committed: nothing comes twice.
    first = {b"%d" % number for number in range(RECORDS)}
    assert all(count == 1 for value, count in seen.items() if value in first or not may_forget)
