"""What transactions of other people's producers leave, read at both levels; and positions that such
producers commit for this consumer.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from kohort import TopicPartition
from tests.interop.consumer.members import Members, Topics

TRANSACTIONS = 12
PRODUCERS = 3
READ_COMMITTED: dict[str, Any] = {
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
}
TIMEOUT_S = 60


def plan(seed: int) -> list[tuple[int, bool, int]]:
    """Which producer, whether it commits, and how many records; the last one is committed."""
    draw = random.Random(seed)
    planned = [
        (draw.randrange(PRODUCERS), draw.random() < 0.5, draw.randint(1, 3))
        for _ in range(TRANSACTIONS)
    ]
    return [*planned, (0, True, 1)]


Written = list[tuple[str, bool]]
"""Values in the order of the log, and whether they were committed."""


async def write_with_aiokafka(bootstrap: str, topic: str, codec: str) -> Written:
    """Transactions of several producers that overlap, with plain records between them."""
    producers = [
        AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=f"{topic}-{number}",
            compression_type=None if codec == "none" else codec,
            linger_ms=0,
        )
        for number in range(PRODUCERS)
    ]
    plain = AIOKafkaProducer(bootstrap_servers=bootstrap)
    written: Written = []
    for producer in (plain, *producers):
        await producer.start()
    try:
        for number, (which, commits, count) in enumerate(plan(1)):
            producer = producers[which]
            await producer.begin_transaction()
            for index in range(count):
                written.append((f"{number}.{index} of {which}" * 9, commits))
                await producer.send_and_wait(topic, written[-1][0].encode(), partition=0)
                written.append((f"plain {number}.{index}", True))
                await plain.send_and_wait(topic, written[-1][0].encode(), partition=0)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
    finally:
        for producer in (plain, *producers):
            await producer.stop()
    return written


def _write_with_librdkafka(bootstrap: str, topic: str, codec: str) -> Written:
    """Transactions that begin before others have ended: several are open at a time."""
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{topic}-{number}",
                "compression.type": codec,
                "linger.ms": 0,
            }
        )
        for number in range(PRODUCERS)
    ]
    for producer in producers:
        producer.init_transactions(TIMEOUT_S)
    written: Written = []
    rounds = [[(which, commits) for which, commits, _ in plan(2)][n::4] for n in range(4)]
    for number, chosen in enumerate(rounds):
        open_now = dict(chosen)
        for which in open_now:
            producers[which].begin_transaction()
        for index in range(2):
            for which, commits in open_now.items():
                value = f"{number}.{index} of {which}" * 9
                producers[which].produce(topic, value.encode(), partition=0)
                assert not producers[which].flush(TIMEOUT_S)
                written.append((value, commits))
        for which, commits in reversed(open_now.items()):
            end = (
                producers[which].commit_transaction
                if commits
                else producers[which].abort_transaction
            )
            end(TIMEOUT_S)
    return written


async def write_with_librdkafka(bootstrap: str, topic: str, codec: str) -> Written:
    return await asyncio.to_thread(_write_with_librdkafka, bootstrap, topic, codec)


Write = Callable[[str, str, str], Awaitable[Written]]


@pytest.mark.parametrize(
    ("write", "codec"),
    [
        (write_with_aiokafka, "none"),
        (write_with_aiokafka, "gzip"),
        (write_with_librdkafka, "none"),
        (write_with_librdkafka, "snappy"),
        (write_with_librdkafka, "lz4"),
        (write_with_librdkafka, "zstd"),
    ],
)
async def test_what_was_aborted_is_read_only_by_those_who_read_everything(
    members: Members, topics: Topics, bootstrap: str, write: Write, codec: str
) -> None:
    topic = topics.create()
    written = await write(bootstrap, topic, codec)
    committed = [value for value, commits in written if commits]
    assert 0 < len(committed) < len(written)
    everything = await read(members, topic, len(written))
    assert [value for _, value in everything] == [value for value, _ in written]
    only_committed = await read(members, topic, len(committed), **READ_COMMITTED)
    assert [value for _, value in only_committed] == committed
    # From the middle on, in small answers: an aborted transaction may have begun before.
    middle, _ = everything[len(everything) // 2]
    behind = [value for offset, value in only_committed if offset >= middle]
    settings = READ_COMMITTED | {"max_partition_fetch_bytes": 300}
    found = await read(members, topic, len(behind), begin=middle, **settings)
    assert [value for _, value in found] == behind


async def read(
    members: Members,
    topic: str,
    count: int,
    *,
    begin: int = 0,
    **settings: Any,  # noqa: ANN401
) -> list[tuple[int, str]]:
    """Offsets and values up to the end of the log, of which there must be so many."""
    consumer = await members.start(group_id=None, **settings)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, begin)
    end = (await consumer.end_offsets([partition]))[partition]
    found: list[tuple[int, str]] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < count or await consumer.position(partition) < end:
            records = (await consumer.poll(0.1)).get(partition, [])
            found += [(one.offset, (one.value or b"").decode()) for one in records]
    assert len(found) == count
    await consumer.stop()
    return found


async def test_librdkafkas_producer_commits_for_a_member_and_for_no_former_one(
    members: Members, topics: Topics, bootstrap: str, group: str
) -> None:
    topic = topics.create(2)
    one = await members.start(topic, **READ_COMMITTED)
    await members.settle(one, partitions=2)
    former = one.group_metadata()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    await asyncio.to_thread(producer.init_transactions, TIMEOUT_S)

    def commit(position: int, identity: bytes) -> None:
        producer.begin_transaction()
        place = ConfluentPartition(topic, 0, position)
        try:
            producer.send_offsets_to_transaction([place], identity, TIMEOUT_S)
        except KafkaException:
            producer.abort_transaction(TIMEOUT_S)
            raise
        producer.commit_transaction(TIMEOUT_S)

    await asyncio.to_thread(commit, 5, former.for_librdkafka())
    assert await one.committed(TopicPartition(topic, 0)) == 5
    # Another generation: what is committed in the name of the former one is refused.
    other = await members.start(topic, **READ_COMMITTED)
    await members.settle(one, other, partitions=2)
    assert one.group_metadata().generation_id > former.generation_id
    with pytest.raises(KafkaException) as caught:
        await asyncio.to_thread(commit, 6, former.for_librdkafka())
    refusal: Any = caught.value.args[0]
    assert refusal.code() == KafkaError.ILLEGAL_GENERATION
    assert refusal.txn_requires_abort()
    assert await one.committed(TopicPartition(topic, 0)) == 5
    await asyncio.to_thread(commit, 7, one.group_metadata().for_librdkafka())
    assert await one.committed(TopicPartition(topic, 0)) == 7


async def test_aiokafkas_producer_commits_for_the_group(
    members: Members, topics: Topics, bootstrap: str, group: str
) -> None:
    topic = topics.create()
    one = await members.start(topic, **READ_COMMITTED)
    await members.settle(one, partitions=1)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group) as producer:
        for position, commits in ((3, True), (4, False)):
            await producer.begin_transaction()
            positions = {AiokafkaPartition(topic, 0): position}
            await producer.send_offsets_to_transaction(positions, one.group_metadata().group_id)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
            assert await one.committed(TopicPartition(topic, 0)) == 3


async def test_a_member_begins_behind_the_end_of_a_transaction_that_has_its_positions(
    members: Members, topics: Topics, bootstrap: str, group: str
) -> None:
    topic = topics.create()
    topics.fill(topic, range(10))
    partition = TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group) as producer:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({AiokafkaPartition(topic, 0): 6}, group)
        await producer.flush()
        waiting = await members.start(topic, **READ_COMMITTED)
        await members.poll_until([waiting], lambda: waiting.assignment() == {partition})
        for _ in range(20):
            assert not await members.poll_once(waiting)
        await producer.commit_transaction()
        records: list[Any] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(records) < 4:
                records += await members.poll_once(waiting)
    assert [record.offset for record in records] == [6, 7, 8, 9]
