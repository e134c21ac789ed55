"""Consumers whose partitions, or whose done records, the application tells them."""

import asyncio
import time

import pytest

from kohort import RebalanceListener, TopicPartition, errors
from tests.interop.consumer.members import TIMEOUT_S, Members, Topics, read, values


async def test_only_what_is_stored_is_committed_at_every_occasion(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(10))
    zero = TopicPartition(topic, 0)
    consumer = await members.start(
        topic, enable_auto_offset_store=False, auto_commit_interval_ms=50
    )
    records = await read(consumer, 10)
    for _ in range(10):
        await consumer.poll(0.05)
    assert await consumer.committed(zero) is None
    consumer.store_offsets(records[3])
    async with asyncio.timeout(TIMEOUT_S):
        while await consumer.committed(zero) != 4:
            await consumer.poll(0.05)
    consumer.store_offsets(offsets={zero: 6})
    await consumer.commit()
    assert await consumer.committed(zero) == 6
    consumer.store_offsets(message=records[7])
    await consumer.stop()
    other = await members.start(topic)
    assert values(await read(other, 2)) == ["8", "9"]


async def test_storing_needs_the_setting_and_something_to_store(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    consumer = await members.start(topic)
    with pytest.raises(errors.IllegalStateError, match="enable_auto_offset_store=False"):
        consumer.store_offsets(offsets={TopicPartition(topic, 0): 1})
    other = await members.start(topic, enable_auto_offset_store=False)
    with pytest.raises(ValueError, match="either a message or offsets"):
        other.store_offsets()
    with pytest.raises(errors.IllegalStateError, match="is not assigned"):
        other.store_offsets(offsets={TopicPartition(topic, 0): 1})


async def test_partitions_are_added_and_taken_away_while_the_others_go_on(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    topics.fill(topic, ["a", "b"], 0)
    topics.fill(topic, ["c"], 1)
    consumer = await members.start(group_id=None, max_poll_records=1)
    consumer.incremental_assign([zero])
    assert values(await read(consumer, 1)) == ["a"]
    consumer.incremental_assign([one])
    # Not from its beginning again.
    assert sorted(values(await read(consumer, 2))) == ["b", "c"]
    consumer.incremental_unassign([zero])
    assert consumer.assignment() == {one}
    with pytest.raises(errors.IllegalStateError, match="was not assigned manually"):
        consumer.incremental_unassign([zero])
    topics.fill(topic, ["d"], 1)
    assert values(await read(consumer, 1)) == ["d"]


async def test_a_subscription_is_not_added_to_by_hand(topics: Topics, members: Members) -> None:
    topic = topics.create()
    consumer = await members.start(topic)
    with pytest.raises(errors.IllegalStateError, match="unsubscribe"):
        consumer.incremental_assign([TopicPartition(topic, 0)])


async def test_without_a_group_a_topic_is_read_whole_with_partitions_that_are_added(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    topics.fill(topic, ["a"], 0)
    topics.fill(topic, ["b"], 1)
    consumer = await members.start(topic, group_id=None, metadata_max_age_ms=200)
    assert sorted(values(await read(consumer, 2))) == ["a", "b"]
    topics.add_partitions(topic, 3)
    topics.fill(topic, ["c"], 2)
    assert values(await read(consumer, 1)) == ["c"]
    assert len(consumer.assignment()) == 3
    await consumer.unsubscribe()
    assert consumer.assignment() == frozenset()


async def test_added_partitions_are_read_from_their_beginning_whatever_the_policy(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(1)
    consumer = await members.start(
        topic, group_id=None, metadata_max_age_ms=200, auto_offset_reset="latest"
    )
    await consumer.position(TopicPartition(topic, 0))
    topics.add_partitions(topic, 2)
    topics.fill(topic, ["new"], 1)
    assert values(await read(consumer, 1)) == ["new"]


async def test_when_a_broker_last_told_of_a_partition(topics: Topics, members: Members) -> None:
    topic = topics.create()
    zero = TopicPartition(topic, 0)
    topics.fill(topic, ["a"])
    consumer = await members.start(topic, group_id=None)
    assert consumer.assignment() == {zero}
    before_ms = time.time_ns() // 1_000_000
    await read(consumer, 1)
    told_ms = consumer.last_poll_timestamp(zero)
    assert told_ms is not None
    assert before_ms - 60_000 < told_ms <= time.time_ns() // 1_000_000
    with pytest.raises(errors.IllegalStateError, match="is not assigned"):
        consumer.last_poll_timestamp(TopicPartition(topic, 7))


async def test_a_pattern_needs_no_group_either(topics: Topics, members: Members) -> None:
    topic = topics.create(1)
    topics.fill(topic, ["a"], 0)
    consumer = await members.start(group_id=None)
    consumer.subscribe(pattern=f"{topic[:-2]}.*")
    assert values(await read(consumer, 1)) == ["a"]


async def test_without_a_group_there_is_nothing_to_listen_to(
    topics: Topics, members: Members
) -> None:
    consumer = await members.start(group_id=None)
    with pytest.raises(errors.IllegalStateError, match="no rebalances"):
        consumer.subscribe([topics.create()], listener=RebalanceListener())
