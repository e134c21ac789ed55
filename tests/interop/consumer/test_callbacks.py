"""What a rebalance listener is told, and what it may do."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kohort import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition, errors
from kohort.client.group.listener import Partitions
from tests.interop.consumer.members import Members, Note, Topics, numbers, read, values


class Working(RebalanceListener):
    """Seeks to where it wants to begin, and commits what it gives up, as an application would."""

    def __init__(self) -> None:
        self.consumer: Consumer
        self.committed: list[tuple[int, int]] = []
        self.begins: list[int] = []

    async def on_assigned(self, partitions: Partitions) -> None:
        await asyncio.sleep(0)
        for partition in partitions:
            self.begins.append(await self.consumer.position(partition))
            await self.consumer.committed(partition)
            self.consumer.seek(partition, 3)

    async def on_revoked(self, partitions: Partitions) -> None:
        for partition in sorted(partitions):
            position = await self.consumer.position(partition)
            await self.consumer.commit({partition: position})
            self.committed.append((partition.partition, position))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_callbacks_may_ask_seek_and_commit(
    strategy: str, topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    for partition in (0, 1):
        topics.fill(topic, range(6), partition)
    settings: dict[str, Any] = {
        "partition_assignment_strategy": strategy,
        "enable_auto_commit": False,
    }
    working = Working()
    first = members.make(**settings)
    working.consumer = first
    first.subscribe([topic], listener=working)
    await first.start()
    assert values(await read(first, 6)) == ["3", "4", "5"] * 2
    assert working.begins == [0, 0]
    second = await members.start(topic, **settings)
    await members.settle(first, second, partitions=2)
    moved = numbers(second.assignment())
    assert {(one, 6) for one in moved} <= set(working.committed)
    assert await second.position(next(iter(second.assignment()))) == 6


class Failing(Note):
    def on_revoked(self, partitions: Partitions) -> None:
        super().on_revoked(partitions)
        raise ZeroDivisionError("revoked")

    def on_assigned(self, partitions: Partitions) -> None:
        super().on_assigned(partitions)
        raise ZeroDivisionError("assigned")


async def test_a_callback_that_raises_does_not_stop_the_rebalance_and_is_heard_of_afterwards(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    settings: dict[str, Any] = {"partition_assignment_strategy": "range"}
    failing = Failing()
    first = await members.start(topic, listener=failing, **settings)
    with pytest.raises(ZeroDivisionError, match="assigned"):
        await members.settle(first, partitions=2)
    second = await members.start(topic, **settings)
    # Of the two that are raised in this rebalance the first one comes out.
    poll = asyncio.create_task(first.poll(60))
    await members.poll_until([second], poll.done)
    with pytest.raises(ZeroDivisionError, match="revoked"):
        await poll
    await members.settle(first, second, partitions=2)
    assert [name for name, _ in failing.calls] == ["assigned", "revoked", "assigned"]
    with pytest.raises(ZeroDivisionError, match="revoked"):
        await first.stop()
    assert first.assignment() == frozenset()
    await members.settle(second, partitions=2)


class Polling(RebalanceListener):
    def __init__(self, poll: Callable[[], object]) -> None:
        self.poll = poll

    async def on_assigned(self, partitions: Partitions) -> None:
        await self.poll()  # type: ignore[misc]


async def test_a_callback_that_polls_is_told_that_it_cannot(
    topics: Topics, members: Members
) -> None:
    for name in ("poll", "getone", "unsubscribe", "stop"):
        consumer = members.make(group_id=f"{members.group}-{name}")
        consumer.subscribe([topics.create()], listener=Polling(getattr(consumer, name)))
        await consumer.start()
        with pytest.raises(errors.IllegalStateError, match="callback"):
            await members.settle(consumer, partitions=1)
        await members.settle(consumer, partitions=1)


class OnlyRevoked(RebalanceListener):
    def __init__(self) -> None:
        self.revoked: list[list[int]] = []

    async def on_revoked(self, partitions: Partitions) -> None:
        self.revoked.append(numbers(partitions))


@pytest.mark.parametrize("kind", [Note, OnlyRevoked])
async def test_partitions_are_lost_when_polls_came_too_seldom(
    kind: type[Note | OnlyRevoked], topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    listener = kind()
    first = await members.start(
        topic, listener=listener, max_poll_interval_ms=700, session_timeout_ms=60_000
    )
    await members.settle(first, partitions=2)
    second = await members.start(topic)
    # The first one is not polled and leaves by itself; otherwise this would take its session.
    async with asyncio.timeout(30):
        await members.settle(second, partitions=2)
    with pytest.raises(errors.CommitFailedError):
        await first.commit({TopicPartition(topic, 0): 1})
    await members.settle(first, second, partitions=2)
    if isinstance(listener, Note):
        assert listener.calls[:2] == [("assigned", [0, 1]), ("lost", [0, 1])]
    else:
        assert listener.revoked[0] == [0, 1]


class Old:
    """A listener as aiokafka has them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def on_partitions_revoked(self, revoked: Partitions) -> None:
        self.calls.append(f"revoked {numbers(revoked)}")

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        self.calls.append(f"assigned {numbers(assigned)}")


async def test_a_listener_that_was_written_for_aiokafka_will_do(
    topics: Topics, members: Members
) -> None:
    old = Old()
    consumer = members.make()
    consumer.subscribe([topics.create(2)], listener=old)  # type: ignore[arg-type]
    await consumer.start()
    await members.settle(consumer, partitions=2)
    await consumer.stop()
    assert old.calls == ["assigned [0, 1]", "revoked [0, 1]"]
    with pytest.raises(TypeError, match="RebalanceListener"):
        members.make().subscribe(["t"], listener=object())  # type: ignore[arg-type]


@pytest.mark.parametrize("automatic", [True, False])
async def test_commits_carry_the_metadata_that_they_were_given(
    automatic: bool, topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(4))
    partition = TopicPartition(topic, 0)
    async with members.make(topic, enable_auto_commit=automatic) as consumer:
        await read(consumer, 4)
        await consumer.commit({partition: OffsetAndMetadata(2, "two")})
        found = (await consumer.committed_offsets([partition]))[partition]
        assert found is not None
        assert found[:2] == (2, "two")
    async with members.make(topic) as consumer:
        # Only auto commit goes on to what was read.
        assert await consumer.committed(partition) == (4 if automatic else 2)
