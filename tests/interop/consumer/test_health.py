"""What health() says of a consumer at work. How it judges is tested in tests/unit/client."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pytest

from kohort import Assignor, Consumer, GroupMember, Health, TopicPartition, errors
from tests.interop.consumer.members import TIMEOUT_S, Members, Topics, generation


class Probing(Assignor):
    """Gives its only member everything, and is asked in the middle of each rebalance how it is."""

    name = "probing"

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.seen: list[Health] = []

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        assert self.consumer is not None
        self.seen.append(self.consumer.health())
        (member,) = members
        topics = partition_counts.items()
        everything = [TopicPartition(topic, at) for topic, count in topics for at in range(count)]
        return {member.member_id: everything}


async def test_two_rebalances_are_not_one_long_one_however_they_are_probed(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    assignor = Probing()
    consumer = await members.start(topic, partition_assignment_strategy=assignor)
    assignor.consumer = consumer
    assert consumer.health().unready == "It has not been polled yet."
    await members.settle(consumer, partitions=1)
    await _rebalance(members, consumer)
    await asyncio.sleep(0.2)
    await _rebalance(members, consumer)
    second = assignor.seen[-1]
    assert second.unsettled_seconds is not None
    assert second.last_rebalance_seconds_ago is not None
    assert second.unsettled_seconds < second.last_rebalance_seconds_ago
    assert second.is_healthy
    assert not second.is_ready


async def test_a_record_that_no_deserialiser_takes_is_told_until_it_is_passed_over(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    bad, good = TopicPartition(topic, 0), TopicPartition(topic, 1)
    topics.fill(bad.topic, ["no json", "2"], 0)
    topics.fill(good.topic, ["1"], 1)
    consumer = members.make(group_id=None, value_deserializer=json.loads)
    consumer.assign([bad, good])
    async with consumer:
        assert (await consumer.getone(good)).value == 1
        assert consumer.health().is_healthy
        with pytest.raises(errors.DeserialisationError):
            await consumer.getone(bad)
        assert consumer.health().is_healthy
        with pytest.raises(errors.DeserialisationError) as caught:
            await consumer.getone(bad)
        health = consumer.health()
        assert health.unread[bad].times == 2
        assert (health.is_healthy, health.is_ready, health.is_alive) == (False, False, True)
        assert f"{bad.topic}-0 cannot be read further, 2 times" in str(health.problem)
        assert json.loads(json.dumps(health.as_dict()))["partitions"][0]["unread"]["times"] == 2
        assert caught.value.record.value == b"no json"
        consumer.seek(bad, caught.value.next_offset or 0)
        assert (await consumer.getone(bad)).value == 2
        assert consumer.health().is_healthy
        assert consumer.health().is_ready


async def _rebalance(members: Members, consumer: Consumer) -> None:
    before = generation(consumer)
    consumer.enforce_rebalance()
    await members.poll_until([consumer], lambda: generation(consumer) > before)
    await members.settle(consumer, partitions=1)


async def test_a_partition_that_is_not_there_is_told_and_the_others_are_read(
    topics: Topics, members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create()
    topics.fill(topic, ["read"])
    there, beyond = TopicPartition(topic, 0), TopicPartition(topic, 7)
    nowhere = TopicPartition(f"{topic}-none", 0)
    consumer = members.make(group_id=None, missing_topic_timeout_ms=300)
    consumer.assign([there, beyond, nowhere])
    async with consumer:
        with pytest.raises(errors.UnknownTopicError) as caught:
            await members.poll_until([consumer], lambda: False)
        assert f"{topic}-7, {topic}-none-0" in str(caught.value)
        health = consumer.health()
        assert set(health.missing) == {f"{topic}-7", f"{topic}-none-0"}
        assert not health.is_ready
        consumer.seek(there, 0)
        read: list[bytes] = []
        async with asyncio.timeout(TIMEOUT_S):
            while not read:
                with suppress(errors.UnknownTopicError):
                    read.append((await consumer.getone(there)).value)
        assert read == [b"read"]
    told = [line for line in caplog.messages if "no such topic or partition" in line]
    assert len(told) == 1
