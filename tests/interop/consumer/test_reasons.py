"""Which JoinReason a consumer states in which situation, and the text beside it (KIP-800)."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from kohort import Assignor, Consumer, JoinReason, TopicPartition, errors
from kohort.client.core.group import base_membership, membership
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.rejoin import Rejoin
from kohort.client.core.group.requests import join_request
from kohort.client.core.group.subscription import Subscription
from kohort.protocol.messages.membership import JoinGroupRequest
from tests.interop.consumer.members import Members, Topics

Stated = tuple[JoinReason, str]


class Joins:
    """All JoinGroups that consumers of this process make, as they go out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[str, list[Stated]] = {}
        monkeypatch.setattr(membership, "join_request", self._note)

    def _note(
        self,
        config: MembershipConfig,
        identity: Identity,
        assignors: Iterable[Assignor],
        subscription: Subscription,
        rejoin: Rejoin,
    ) -> JoinGroupRequest:
        request = join_request(config, identity, assignors, subscription, rejoin)
        stated = (JoinReason(request.join_reason), request.reason or "")
        # A broker that has just started may take a few attempts, which say so.
        if "JoinGroup failed" not in rejoin.text:
            self.of.setdefault(config.rack or "", []).append(stated)
        return request

    def count(self, rack: str = "") -> int:
        return len(self.of[rack])

    def since(self, count: int, rack: str = "") -> list[Stated]:
        return self.of[rack][count:]


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> Joins:
    return Joins(monkeypatch)


async def test_a_first_join_says_what_the_process_does(
    topics: Topics, members: Members, joins: Joins
) -> None:
    topic = topics.create()
    for rack, settings, stated in (
        ("dynamic", {}, (JoinReason.RESTART, "started")),
        ("static", {"group_instance_id": "one"}, (JoinReason.RESTART, "restarted")),
        ("upgrade", {"join_reason": "upgrade"}, (JoinReason.UPGRADE, "upgrade")),
    ):
        group = f"{members.group}-{rack}"
        given: dict[str, Any] = {"client_rack": rack, "group_id": group, **settings}
        consumer = await members.start(topic, **given)
        await members.settle(consumer, partitions=1)
        # A dynamic one joins twice, the second time with the id that it was given.
        assert {*joins.of[rack]} == {stated}
        begun = joins.count(rack)
        await consumer.unsubscribe()
        consumer.subscribe([topic])
        await members.settle(consumer, partitions=1)
        assert joins.since(begun, rack)[0][0] is JoinReason.RESTART


async def test_others_follow_a_rebalance_and_give_up_partitions_in_a_second_one(
    topics: Topics, members: Members, joins: Joins
) -> None:
    topic = topics.create(2)
    first = await members.start(topic, client_rack="first")
    await members.settle(first, partitions=2)
    begun = joins.count("first")
    second = await members.start(topic, client_rack="second")
    await members.settle(first, second, partitions=2)
    assert joins.since(begun, "first") == [
        (JoinReason.GROUP_REBALANCING, "group is rebalancing"),
        (JoinReason.PARTITIONS_REVOKED, "gave up a partition"),
    ]


async def test_a_member_that_is_asked_to_says_why_in_the_words_it_was_given(
    topics: Topics, members: Members, joins: Joins
) -> None:
    consumer = await members.start(topics.create())
    await members.settle(consumer, partitions=1)
    begun = joins.count()
    for number, (call, stated) in enumerate(
        (
            (("the cache is cold", False), (JoinReason.ENFORCED, "the cache is cold")),
            ((None, False), (JoinReason.ENFORCED, base_membership.ENFORCED_TEXT)),
            (("weights", True), (JoinReason.ASSIGNOR_STATE_CHANGE, "weights")),
            (("x" * 300, False), (JoinReason.ENFORCED, "x" * 255)),
        )
    ):
        reason, state_changed = call
        consumer.enforce_rebalance(reason, state_changed=state_changed)
        await members.settle(consumer, partitions=1)
        assert joins.since(begun + number) == [stated]


async def test_topics_that_change_are_named(topics: Topics, members: Members, joins: Joins) -> None:
    topic, other = topics.create(), topics.create()
    consumer = await members.start(topic, metadata_max_age_ms=200)
    await members.settle(consumer, partitions=1)
    begun = joins.count()
    topics.add_partitions(topic, 2)
    await members.settle(consumer, partitions=2)
    consumer.subscribe([topic, other])
    await members.settle(consumer, partitions=3)
    assert joins.since(begun) == [
        (JoinReason.TOPIC_METADATA_CHANGE, f"topic metadata changed: {topic}, 1 -> 2"),
        (JoinReason.SUBSCRIPTION_CHANGE, "subscription changed"),
    ]


async def test_a_member_that_was_removed_says_how(
    topics: Topics, members: Members, joins: Joins
) -> None:
    topic = topics.create()
    consumer = await members.start(topic, max_poll_interval_ms=400, enable_auto_commit=False)
    await members.settle(consumer, partitions=1)
    begun = joins.count()
    await is_out(consumer)
    await members.settle(consumer, partitions=1)
    stated = joins.since(begun)
    assert stated[0] == (JoinReason.MEMBERSHIP_LOST, "max.poll.interval.ms exceeded")
    assert {reason for reason, _ in stated} == {JoinReason.MEMBERSHIP_LOST}


async def is_out(consumer: Consumer) -> None:
    """Wait, without polling, until it has left its group by itself."""
    partition = next(iter(consumer.assignment()))
    async with asyncio.timeout(60):
        while True:
            await asyncio.sleep(0.1)
            try:
                await consumer.commit({TopicPartition(*partition): 0})
            except errors.CommitFailedError:
                return
