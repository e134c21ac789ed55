"""Polls that are cancelled, that meet each other, and that outlive their consumer."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kohort import Consumer, ConsumerRecord, TopicPartition
from tests.interop.consumer.members import (
    Members,
    Note,
    Topics,
    generation,
    is_at_rest,
    read,
    values,
)


async def test_polls_that_are_cancelled_again_and_again_join_all_the_same(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(20))
    consumer = await members.start(topic)
    seen: list[str] = []
    async with asyncio.timeout(60):
        while len(seen) < 20:
            # Of these, hardly one lives long enough to see an answer of the coordinator.
            with suppress(TimeoutError):
                async with asyncio.timeout(0.003):
                    seen.append((await consumer.getone()).value.decode())
    assert seen == [str(number) for number in range(20)]
    assert generation(consumer) == 1


async def test_polls_without_patience_join_too(topics: Topics, members: Members) -> None:
    topic = topics.create()
    topics.fill(topic, ["a"])
    consumer = await members.start(topic)
    found: Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]] = {}
    async with asyncio.timeout(60):
        while not found:
            found = await consumer.poll(0)
    assert values(found[TopicPartition(topic, 0)]) == ["a"]


async def test_the_others_do_not_wait_for_a_member_that_works_between_its_polls(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    first = await members.start(topic, enable_auto_commit=False)
    await members.settle(first, partitions=2)
    before = generation(first)
    second = await members.start(topic)
    await members.poll_until([second], lambda: not is_at_rest(first))
    # It was told to join, and one short poll sends that; the rest goes on behind its back.
    await first.poll(0)
    await members.poll_until([second], lambda: generation(first) > before)
    await members.settle(first, second, partitions=2)


async def test_two_tasks_can_take_turns_in_polling(topics: Topics, members: Members) -> None:
    topic = topics.create()
    topics.fill(topic, range(200))
    consumer = await members.start(topic)
    seen: list[str] = []

    async def take() -> None:
        while len(seen) < 200:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    seen.append((await consumer.getone()).value.decode())

    await asyncio.wait_for(asyncio.gather(take(), take()), 60)
    assert sorted(map(int, seen)) == [*range(200)]


async def test_a_member_can_be_closed_in_every_phase_of_its_first_rebalance(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    staying = await members.start(topic)
    await members.settle(staying, partitions=2)
    for turns in range(8):
        note = Note()
        leaving = await members.start(topic, listener=note)
        for _ in range(turns):
            await leaving.poll(0.01)
            await staying.poll(0)
        began = time.monotonic()
        await leaving.stop()
        assert time.monotonic() - began < 20
        assert leaving.assignment() == frozenset()
    # Those that had a member id have said goodbye: this does not take a session, which is longer.
    async with asyncio.timeout(40):
        await members.settle(staying, partitions=2)
    await read_nothing(staying)


async def read_nothing(consumer: Consumer) -> None:
    assert await consumer.poll(0.05) == {}


async def test_no_task_and_no_thread_is_left_behind(topics: Topics, members: Members) -> None:
    topic = topics.create()
    topics.fill(topic, ["a"])
    before = asyncio.all_tasks()
    async with members.make(topic) as consumer:
        await read(consumer, 1)
        assert consumer._lifecycle.engine is not None
        assert consumer._lifecycle.engine.member is not None
        thread = consumer._lifecycle.engine.member.heartbeats._thread
        assert thread.is_alive()
        assert asyncio.all_tasks() - before
    assert not thread.is_alive()
    assert asyncio.all_tasks() == before
