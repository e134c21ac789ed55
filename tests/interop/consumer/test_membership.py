"""Membership: how members of a group share partitions, join, leave and come back."""

import asyncio
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kohort import (
    Assignor,
    GroupMember,
    JoinReason,
    TopicPartition,
    errors,
)
from tests.interop.consumer.members import Members, Note, Topics, generation, is_settled, numbers


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_members_share_partitions_and_take_over_from_those_that_leave(
    strategy: str, topics: Topics, members: Members
) -> None:
    topic = topics.create(4)
    settings: dict[str, Any] = {"partition_assignment_strategy": strategy}
    first = await members.start(topic, **settings)
    await members.settle(first, partitions=4)
    second = await members.start(topic, **settings)
    await members.settle(first, second, partitions=4)
    assert {len(one.assignment()) for one in (first, second)} == {2}
    await second.stop()
    await members.settle(first, partitions=4)


async def test_kept_partitions_are_read_while_a_cooperative_group_rebalances(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    note = Note()
    first = await members.start(topic, listener=note)
    await members.settle(first, partitions=2)
    # It has to be asked for its id and joins; then the group waits for the first one, which polls.
    second = await members.start(topic)
    await second.poll(0)
    await members.poll_until([second], lambda: bool(second.group_metadata().member_id))
    topics.fill(topic, range(50), 0)
    topics.fill(topic, range(50), 1)
    records = await members.poll_until([first, second], lambda: is_settled((first, second), 2))
    while len(records) < 100:
        records += await members.poll_once(first, second)
    assert sorted((one.partition, one.offset) for one in records) == [
        (partition, offset) for partition in (0, 1) for offset in range(50)
    ]
    moved = numbers(second.assignment())
    assert note.calls == [
        ("assigned", [0, 1]),
        ("revoked", moved),
        ("assigned", []),
        ("assigned", []),
    ]


async def test_an_eager_group_revokes_everything_first_and_a_cooperative_one_what_moves(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    settings: dict[str, Any] = {"partition_assignment_strategy": "range"}
    note = Note()
    first = await members.start(topic, listener=note, **settings)
    await members.settle(first, partitions=2)
    second = await members.start(topic, **settings)
    await members.settle(first, second, partitions=2)
    kept = numbers(first.assignment())
    assert note.calls == [
        ("assigned", [0, 1]),
        ("revoked", [0, 1]),
        ("assigned", kept),
    ]


async def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    first = await members.start(topic, group_instance_id="one")
    second = await members.start(topic, group_instance_id="two")
    await members.settle(first, second, partitions=2)
    share, generation = second.assignment(), second.group_metadata().generation_id
    await second.stop()
    again = await members.start(topic, group_instance_id="two")
    await members.settle(again, partitions=1)
    assert again.assignment() == share
    assert again.group_metadata().generation_id == generation
    assert await first.poll(0.2) == {}
    assert first.group_metadata().generation_id == generation


@pytest.mark.parametrize(("instance_id", "leave"), [(None, False), ("static", True)])
async def test_whether_a_closing_member_leaves_can_be_chosen(
    instance_id: str | None, leave: bool, topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    first = await members.start(topic, session_timeout_ms=30_000)
    second = await members.start(topic, group_instance_id=instance_id, session_timeout_ms=30_000)
    await members.settle(first, second, partitions=2)
    await second.stop(leave=leave)
    if leave:
        await members.settle(first, partitions=2)
    else:
        # What the group has is decided once `stop` has returned, whether `first` knows or not.
        assert topics.describe_group(members.group) == ("STABLE", 2)
        await members.settle(first, partitions=1)


async def test_a_pattern_takes_in_topics_as_they_appear(topics: Topics, members: Members) -> None:
    name = f"by-pattern-{uuid.uuid4().hex[:8]}"
    topics.create(1, name=f"{name}-a")
    consumer = members.make(metadata_max_age_ms=200)
    consumer.subscribe(pattern=re.escape(name) + "-.*")
    await consumer.start()
    await members.settle(consumer, partitions=1)
    topics.create(2, name=f"{name}-b")
    topics.create(2, name=f"not-{name}-c")
    await members.settle(consumer, partitions=3)
    assert consumer.subscription() == {f"{name}-a", f"{name}-b"}


async def test_internal_topics_do_not_match_a_pattern_unless_they_are_asked_for(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(1)
    first = await members.start(topic)
    await members.settle(first, partitions=1)
    await first.commit({TopicPartition(topic, 0): 0})
    count = len(await first.partitions_for("__consumer_offsets"))
    assert count > 0
    for excludes, expected, partitions in (
        (True, set(), 0),
        (False, {"__consumer_offsets"}, count),
    ):
        consumer = members.make(
            group_id=f"{members.group}-{excludes}", exclude_internal_topics=excludes
        )
        consumer.subscribe(pattern="__consumer_.*")
        async with consumer:
            await members.settle(consumer, partitions=partitions)
            assert consumer.subscription() == expected


async def test_another_subscription_is_joined_with_by_the_next_poll(
    topics: Topics, members: Members
) -> None:
    old, new = topics.create(1), topics.create(2)
    consumer = await members.start(old)
    await members.settle(consumer, partitions=1)
    consumer.subscribe([new])
    await members.poll_until(
        [consumer], lambda: {one.topic for one in consumer.assignment()} == {new}
    )
    assert is_settled([consumer], 2)


async def test_a_leader_notices_new_partitions(topics: Topics, members: Members) -> None:
    topic = topics.create(1)
    consumer = await members.start(topic, metadata_max_age_ms=200)
    await members.settle(consumer, partitions=1)
    topics.add_partitions(topic, 3)
    await members.settle(consumer, partitions=3)


async def test_a_topic_that_appears_after_the_group_is_read(
    topics: Topics, members: Members
) -> None:
    name = f"late-{uuid.uuid4().hex[:8]}"
    consumer = await members.start(name, missing_topic_timeout_ms=None, retry_backoff_max_ms=100)
    await members.poll_until([consumer], lambda: consumer.group_metadata().generation_id > 0)
    topics.create(2, name=name)
    await members.settle(consumer, partitions=2)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("instance_id", [None, "static"])
async def test_any_member_can_enforce_one_rebalance(
    strategy: str, instance_id: str | None, topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    settings: dict[str, Any] = {"partition_assignment_strategy": strategy}
    first = await members.start(topic, **settings)
    await members.settle(first, partitions=2)
    follower = await members.start(topic, group_instance_id=instance_id, **settings)
    both = (first, follower)
    await members.settle(*both, partitions=2)
    for member in both:
        before = generation(member)
        member.enforce_rebalance("first wish")
        member.enforce_rebalance("the tests want it")
        await asyncio.sleep(0.05)
        assert generation(member) == before, "it sent something by itself"
        # It is not at rest before its wish is fulfilled.
        await members.settle(*both, partitions=2)
        for _ in range(3):
            await members.poll_once(*both)
        await members.settle(*both, partitions=2)
        assert generation(first) == before + 1


class AllToTheLast(Assignor):
    """Gives everything to the member with the greatest user data."""

    name = "all-to-the-last"

    def __init__(self, rank: bytes) -> None:
        self.rank = rank
        self.heard: list[tuple[list[int], int]] = []

    def user_data(self, topics: object) -> bytes:
        return self.rank

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        last = max(members, key=lambda member: member.user_data or b"")
        everything = [
            TopicPartition(topic, index)
            for topic, count in partition_counts.items()
            for index in range(count)
        ]
        return {one.member_id: everything if one is last else [] for one in members}

    def on_assignment(self, partitions: object, generation: int) -> None:
        self.heard.append((numbers(partitions), generation))  # type: ignore[arg-type]


async def test_an_assignor_of_ones_own_decides_and_can_say_that_its_state_has_changed(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    assignors = [AllToTheLast(b"1"), AllToTheLast(b"2")]
    first, second = [
        await members.start(topic, partition_assignment_strategy=one) for one in assignors
    ]
    await members.settle(first, second, partitions=2)
    assert len(second.assignment()) == 2
    assignors[0].rank = b"3"
    first.enforce_rebalance("its rank has changed", state_changed=True)
    await members.poll_until([first, second], lambda: len(first.assignment()) == 2)
    assert assignors[0].heard[-1][0] == [0, 1]


async def test_unsubscribing_leaves_the_group_and_subscribing_joins_it_again(
    topics: Topics, members: Members
) -> None:
    topic = topics.create(2)
    note = Note()
    first = await members.start(topic, listener=note)
    second = await members.start(topic)
    await members.settle(first, second, partitions=2)
    note.calls.clear()
    share = numbers(first.assignment())
    await first.unsubscribe()
    assert (first.assignment(), first.subscription()) == (frozenset(), frozenset())
    assert note.calls == [("revoked", share)]
    await members.settle(second, partitions=2)
    with pytest.raises(errors.IllegalStateError):
        first.enforce_rebalance()
    first.assign([TopicPartition(topic, 0)])
    await first.unsubscribe()
    first.subscribe([topic])
    await members.settle(first, second, partitions=2)


async def test_only_a_first_join_can_announce_an_upgrade(topics: Topics, members: Members) -> None:
    consumer = await members.start(topics.create(1), join_reason="upgrade")
    assert consumer.config.first_reason is JoinReason.UPGRADE
    await members.settle(consumer, partitions=1)
