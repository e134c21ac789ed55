"""What is left of an unsubscribe that is cancelled."""

import asyncio

import pytest

from kohort import RebalanceListener, errors
from kohort.client.group.listener import Partitions
from tests.interop.consumer.members import Members, Note, Topics, read, values

LONG_SESSION_MS = 300_000
"""Longer than a test waits: a group that is not told does not notice."""


async def test_one_that_is_cancelled_while_it_commits_has_not_happened(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    note = Note()
    consumer = await members.start(topic, listener=note)
    await members.settle(consumer, partitions=2)
    topics.fill(topic, ["before"])
    assert values(await read(consumer, 1)) == ["before"]
    unsubscribing = asyncio.create_task(consumer.unsubscribe())
    await asyncio.sleep(0)  # The commit is sent, and its answer is not here.
    unsubscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unsubscribing
    assert consumer.subscription() == {topic}
    assert note.calls == [("assigned", [0, 1])]
    topics.fill(topic, ["after"])
    assert values(await read(consumer, 1)) == ["after"]


class Slow(RebalanceListener):
    """Takes its time to give up."""

    def __init__(self) -> None:
        self.is_called = asyncio.Event()
        self.may_end = asyncio.Event()
        self.has_ended = False

    async def on_revoked(self, partitions: Partitions) -> None:
        del partitions
        self.is_called.set()
        await self.may_end.wait()
        self.has_ended = True


async def test_one_that_is_cancelled_in_its_callback_happens_and_the_group_is_told(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    slow = Slow()
    first = await members.start(topic, listener=slow, session_timeout_ms=LONG_SESSION_MS)
    await members.settle(first, partitions=2)
    unsubscribing = asyncio.create_task(first.unsubscribe())
    await slow.is_called.wait()
    unsubscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unsubscribing
    # The callback may still commit, so the partitions have not gone yet.
    assert len(first.assignment()) == 2
    with pytest.raises(errors.IllegalStateError, match="still in progress"):
        first.subscribe([topic])
    slow.may_end.set()
    await first.unsubscribe()
    assert slow.has_ended
    assert (first.assignment(), first.subscription()) == (frozenset(), frozenset())
    with pytest.raises(errors.IllegalStateError, match="nothing to read"):
        await first.poll()
    second = await members.start(topic)
    await members.settle(second, partitions=2)
    first.subscribe([topic])
    await members.settle(first, second, partitions=2)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
async def test_a_static_member_that_subscribes_to_more_than_before_gets_it(
    topics: Topics, members: Members, strategy: str
) -> None:
    """It has not left the group, which would go on with what it wanted then."""
    one, more = topics.create(2), topics.create(2)
    consumer = await members.start(
        one, group_instance_id="static", partition_assignment_strategy=strategy
    )
    await members.settle(consumer, partitions=2)
    await consumer.unsubscribe()
    consumer.subscribe([one, more])
    await members.settle(consumer, partitions=4)
