"""Reading some of the assigned partitions alone, and what that leaves of the others: everything."""

import asyncio

import pytest

from kohort import TopicPartition, errors
from tests.interop.consumer.members import TIMEOUT_S, Members, Topics, read, values


async def test_others_are_neither_returned_nor_paused_and_come_afterwards(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(3)
    zero, one, two = (TopicPartition(topic, index) for index in range(3))
    consumer = await members.start(group_id=None)
    consumer.assign([zero, one, two])
    consumer.pause(two)
    topics.fill(topic, ["zero"], 0)
    topics.fill(topic, ["two"], 2)
    reading = asyncio.create_task(consumer.getone(one))
    await asyncio.sleep(0.3)
    assert consumer.paused() == {two}
    # What others do to partitions meanwhile stays.
    consumer.pause(zero)
    consumer.resume(two)
    await asyncio.sleep(0.1)
    assert (consumer.paused(), reading.done()) == ({zero}, False)
    topics.fill(topic, ["one"], 1)
    async with asyncio.timeout(TIMEOUT_S):
        assert (await reading).value == b"one"
    assert consumer.paused() == {zero}
    assert values(await read(consumer, 1)) == ["two"]
    consumer.resume(zero)
    assert values(await read(consumer, 1)) == ["zero"]


async def test_partitions_that_come_meanwhile_wait_as_well(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    zero, one = (TopicPartition(topic, index) for index in range(2))
    consumer = await members.start(group_id=None)
    consumer.assign([zero])
    topics.fill(topic, ["one"], 1)
    reading = asyncio.create_task(consumer.getmany(zero, timeout_ms=500))
    await asyncio.sleep(0.05)
    consumer.assign([zero, one])
    assert await reading == {}
    assert values(await read(consumer, 1)) == ["one"]


async def test_who_waits_for_a_partition_that_goes_is_told(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    zero, one = (TopicPartition(topic, index) for index in range(2))
    consumer = await members.start(group_id=None)
    consumer.assign([zero, one])
    reading = asyncio.create_task(consumer.getone(one))
    await asyncio.sleep(0.05)
    consumer.assign([zero])
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(errors.IllegalStateError, match="not assigned"):
            await reading


async def test_a_rebalance_after_which_a_partition_comes_back_is_waited_for(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    consumer = await members.start(topic, partition_assignment_strategy="range")
    await members.settle(consumer, partitions=2)
    reading = asyncio.create_task(consumer.getone(TopicPartition(topic, 1)))
    consumer.enforce_rebalance("to see what becomes of readers")
    await asyncio.sleep(0.5)
    topics.fill(topic, ["still"], 1)
    async with asyncio.timeout(TIMEOUT_S):
        assert (await reading).value == b"still"


async def test_tasks_that_read_a_partition_each_get_the_records_of_theirs(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    partitions = [TopicPartition(topic, index) for index in range(2)]
    consumer = await members.start(group_id=None)
    consumer.assign(partitions)
    for partition in partitions:
        topics.fill(
            topic, [f"{partition.partition}-{number}" for number in range(20)], partition.partition
        )

    async def reads(partition: TopicPartition) -> list[str]:
        one_by_one = [await consumer.getone(partition) for _ in range(10)]
        while len(one_by_one) < 20:
            found = await consumer.getmany(partition, timeout_ms=100)
            assert found.keys() <= {partition}
            one_by_one += found.get(partition, [])
        return values(one_by_one)

    async with asyncio.timeout(TIMEOUT_S):
        found = await asyncio.gather(*(reads(partition) for partition in partitions))
    assert found == [[f"{index}-{number}" for number in range(20)] for index in range(2)]
