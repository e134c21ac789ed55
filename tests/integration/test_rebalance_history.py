"""The history of a broker that real clients use: asked, and read as a topic."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition

from kohort import Consumer
from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.topics.names import REBALANCE_HISTORY
from kohort.groups.events import TriggerKind
from kohort.groups.history.json_form import from_json
from kohort.groups.history.model import (
    HistoryRecord,
    MemberFate,
    RebalanceOutcome,
    RebalanceRecord,
)
from kohort.testing.kit.groups import history_records
from tests.support.waiting import until


@asynccontextmanager
async def running(directory: Path, **settings: str) -> AsyncIterator[Broker]:
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "kohort.metrics.port": "-1",
        "kohort.console.port": "-1",
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    given = [f"{name}={value}" for name, value in overrides.items()]
    async with Broker(load(overrides=given, environment={})).running() as broker:
        yield broker


def address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.endpoint.port}"


@asynccontextmanager
async def consuming(broker: Broker, topic: str = "t") -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=address(broker),
        group_id="readers",
        heartbeat_interval_ms=100,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def create_topic(broker: Broker, partitions: int = 4) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address(broker))
    await admin.start()
    await admin.create_topics([NewTopic("t", partitions, 1)])
    await admin.close()


async def stored(broker: Broker, count: int) -> list[tuple[str, dict[str, bytes], dict[str, Any]]]:
    """Group id, headers and value of everything in the topic, as any client reads it, once there
    are so many records: they are told a moment before they are written.
    """

    def is_written() -> bool:
        written = broker.services.topics.partition(REBALANCE_HISTORY, 0)
        return written is not None and written.high_watermark >= count

    await until(is_written)
    consumer = AIOKafkaConsumer(bootstrap_servers=address(broker), enable_auto_commit=False)
    await consumer.start()
    partition = TopicPartition(REBALANCE_HISTORY, 0)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    end = (await consumer.end_offsets([partition]))[partition]
    found = []
    while await consumer.position(partition) < end:
        batches = await consumer.getmany(partition, timeout_ms=500)
        found += [
            (message.key.decode(), dict(message.headers), json.loads(message.value))
            for message in batches.get(partition, [])
        ]
    await consumer.stop()
    return found


def rebalances(records: list[HistoryRecord]) -> list[RebalanceRecord]:
    return [record for record in records if isinstance(record, RebalanceRecord)]


async def until_closed(broker: Broker, count: int) -> list[RebalanceRecord]:
    await until(lambda: broker.history.totals("readers")[0] >= count)
    return rebalances(history_records(broker.history, "readers"))


async def test_what_a_group_went_through_can_be_asked_and_read_from_the_topic(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        await create_topic(broker)
        async with consuming(broker):
            await until_closed(broker, 1)
            async with consuming(broker) as second:
                await until(lambda: len(second.assignment()) == 2)
            await until_closed(broker, 3)
        first, joined, left, emptied = await until_closed(broker, 4)
        texts = await stored(broker, 4)

    kinds = [record.trigger.kind for record in (first, joined, left, emptied)]
    assert kinds == [
        TriggerKind.MEMBER_ADDED,
        TriggerKind.MEMBER_ADDED,
        TriggerKind.MEMBER_LEFT,
        TriggerKind.MEMBER_LEFT,
    ]
    assert (first.initial, first.generation) == (True, 1)
    assert joined.partitions.known
    assert (joined.partitions.kept, joined.partitions.moved) == (2, 2)
    assert [member.fate for member in joined.members] == [MemberFate.KEPT, MemberFate.NEW]
    # aiokafka states no software.
    assert {member.client_software_name for member in joined.members} == {"unknown"}
    assert (left.partitions.moved, left.partitions.given_up) == (2, 2)
    assert emptied.outcome is RebalanceOutcome.EMPTY
    assert [record.sequence for record in (first, joined, left, emptied)] == [1, 2, 3, 4]
    # Others read the same: the records, their order, and headers to sort them by.
    assert [from_json(value) for _, _, value in texts] == [first, joined, left, emptied]
    assert {group for group, _, _ in texts} == {"readers"}
    said = {"schema": b"1", "kind": b"rebalance", "sequence": b"2", "generation": b"2"}
    assert texts[1][1] == said


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_are_recorded_with_the_software_that_their_clients_state(
    tmp_path: Path, protocol: Literal["classic", "consumer"]
) -> None:
    async with running(tmp_path) as broker:
        await create_topic(broker)
        consumer = Consumer(
            "t", bootstrap_servers=address(broker), group_id="readers", group_protocol=protocol
        )
        async with consumer:
            polling = asyncio.create_task(consumer.getone())
            (own,) = (await until_closed(broker, 1))[0].members
            polling.cancel()
    assert own.client_software_name == "kohort-python"
    assert own.client_software_version == version("kohort")


async def test_clients_cannot_write_the_history(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await create_topic(broker)
        async with consuming(broker):
            await until_closed(broker, 1)
        topics = broker.services.topics
        await until(lambda: topics.get(REBALANCE_HISTORY) is not None)
        producer = AIOKafkaProducer(bootstrap_servers=address(broker), request_timeout_ms=60_000)
        await producer.start()
        with pytest.raises(Exception, match="InvalidTopic"):
            await producer.send_and_wait(REBALANCE_HISTORY, b"{}", partition=0)
        await producer.stop()
        await until_closed(broker, 2)
        assert [value["sequence"] for _, _, value in await stored(broker, 2)] == [1, 2]
