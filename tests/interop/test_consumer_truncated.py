"""A real Kafka that comes back without the end of its log, and fills the gap with other records.

A Kohort cannot be asked: it has one leader epoch for ever.
"""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from kohort import Consumer, TopicPartition, errors
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record
from tests.support.waiting import wait_until

TOPIC = "cut-off"
PARTITION = TopicPartition(TOPIC, 0)


def produce(server: KafkaServer, prefix: str, count: int) -> None:
    records = [Record(b"%s-%d" % (prefix.encode(), number)) for number in range(count)]
    ConfluentClient(server.bootstrap).produce(TOPIC, records)


def prepare(server: KafkaServer) -> int:
    """Ten records that stay and ten that will not; where the log is to be cut."""
    server.start(timeout_s=150)
    admin = admin_client(server.bootstrap)
    create_topics(admin, NewTopic(TOPIC, 1, 1))
    produce(server, "kept", 10)
    size = log_of(server).stat().st_size
    produce(server, "gone", 10)
    return size


def log_of(server: KafkaServer) -> Path:
    return server.data / f"{TOPIC}-0" / "00000000000000000000.log"


def cut(server: KafkaServer, size: int) -> None:
    """What a disk may do that loses power, or a follower that leads before it has caught up."""
    server.kill()
    with log_of(server).open("r+b") as log:
        log.truncate(size)
    server.start(timeout_s=150)
    admin = admin_client(server.bootstrap)
    wait_until(lambda: TOPIC in admin.list_topics(timeout=10).topics, "the topic to be back")
    produce(server, "other", 15)


async def read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        for records in (await consumer.poll(0.2)).values():
            found += [record.value.decode() for record in records]
    return found


@pytest.mark.long
@pytest.mark.timeout(500)
async def test_who_has_read_what_is_gone_is_told_or_goes_back_to_where_the_logs_part(
    tmp_path: Path,
) -> None:
    others = [f"other-{number}" for number in range(15)]
    server = KafkaServer(tmp_path)
    size = await asyncio.to_thread(prepare, server)
    try:
        careful, easy, late = (
            Consumer(
                bootstrap_servers=server.bootstrap,
                group_id=policy + suffix,
                auto_offset_reset=policy,
                enable_auto_commit=False,
            )
            for policy, suffix in (("none", ""), ("latest", ""), ("latest", "-late"))
        )
        for consumer in (careful, easy, late):
            await consumer.start()
            consumer.assign([PARTITION])
            consumer.seek(PARTITION, 0)
            assert (await read(consumer, 20))[-1] == "gone-9"
        await late.commit()
        await late.stop()
        await asyncio.to_thread(cut, server, size)

        assert await read(easy, 15) == others
        with pytest.raises(errors.LogTruncatedError) as told:
            await read(careful, 1)
        assert (told.value.partition, told.value.offset) == (PARTITION, 20)
        assert told.value.parted is not None
        assert told.value.parted.offset == 10
        careful.seek(PARTITION, told.value.parted)
        assert await read(careful, 15) == others
        # What was committed is looked at in the same way.
        async with Consumer(
            bootstrap_servers=server.bootstrap, group_id="latest-late", enable_auto_commit=False
        ) as again:
            again.assign([PARTITION])
            assert await read(again, 15) == others
        await careful.stop()
        await easy.stop()
    finally:
        server.stop()
