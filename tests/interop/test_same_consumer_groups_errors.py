"""Requests of consumer groups (KIP-848) that are refused, and in which order they are checked."""

from itertools import combinations
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.offsets import commit_topic
from tests.interop.same_answers.pair import Answers, Pair
from tests.interop.same_answers.scenes import NOWHERE, Topic, create_topic
from tests.interop.test_same_consumer_groups_walk import alike
from tests.support import messages as m
from tests.support.waiting import wait_until

JOIN: Final[dict[str, Value]] = {
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "topic_partitions": [],
}
FAULTS: Final[tuple[dict[str, Value], ...]] = (
    {"member_id": ""},
    {"member_id": " "},
    {"group_id": ""},
    {"group_id": " "},
    {"instance_id": ""},
    {"instance_id": " "},
    {"rack_id": ""},
    {"rack_id": " \t"},
    {"rebalance_timeout_ms": -1},
    {"topic_partitions": None},
    {"topic_partitions": [TopicPartitions(topic_id=b"\7" * 16, partitions=[0])]},
    {"subscribed_topic_names": None},
    {"server_assignor": "none"},
    {"subscribed_topic_regex": "(?=a)"},
)
"""In the order of the checks, alone and with each other."""
REFUSED: Final = ("(?=a)", r"(a)\1", "a++", "(?x)a", "a{1001}", "(", "[", "*a", r"\Z", "a**")
ACCEPTED: Final = (
    *("", "(?i)RX-A", "(?P<n>x)", "(?<n>x)", r"\Qx\E", r"\p{L}+", "[[:alpha:]]", r"\A..\z"),
    *("a$|^b", "a{1000}", "(^q4)", r"\pN", "."),
)


class Consumers:
    """A group whose targets are computed at once."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.id = Group(pair).id
        pair.ask(alike(self.id), 1)

    def beat(self, member_id: str, epoch: int, version: int = 1, **fields: Value) -> Answers:
        stated = {"group_id": self.id, "member_id": member_id, "member_epoch": epoch, **fields}
        return self.pair.ask(ConsumerGroupHeartbeatRequest(**stated), version)

    def join(self, member_id: str, *names: str, **fields: Value) -> Answers:
        stated = {**JOIN, "subscribed_topic_names": list(names), **fields}
        return self.beat(member_id, stated.pop("member_epoch"), **stated)

    def commit(self, member_id: str, epoch: int, *places: Value, version: int = 9) -> None:
        request = m.OffsetCommitRequest(
            group_id=self.id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=list(places),
        )
        self.pair.ask(request, version)


def assigned(pair: Pair, topic: Topic) -> Consumers:
    """A group whose member has the topic, which Kafka's coordinator may learn of later."""
    while True:
        consumers = Consumers(pair)
        fields = {**JOIN, "subscribed_topic_names": [topic.name]}
        request = ConsumerGroupHeartbeatRequest(group_id=consumers.id, member_id="one", **fields)
        if all(answer.assignment.topic_partitions for answer in pair.peek(request, 1)):
            return consumers


@pytest.fixture
def consumers(pair: Pair) -> Consumers:
    return Consumers(pair)


@pytest.mark.parametrize("epoch", [0, 3, -1, -2, -3])
def test_fields_are_checked_in_the_same_order(consumers: Consumers, epoch: int) -> None:
    for faults in (*((fault,) for fault in FAULTS), *combinations(FAULTS, 2)):
        stated: dict[str, Value] = {**JOIN, "subscribed_topic_names": [], "group_id": consumers.id}
        for fault in faults:
            stated |= fault
        member_id = stated.pop("member_id", "one")
        stated["member_epoch"] = epoch
        answers = consumers.pair.ask(
            ConsumerGroupHeartbeatRequest(member_id=member_id, **stated), 1
        )
        if answers.kafka.error_code == ErrorCode.INVALID_REQUEST:
            # The message begins with the field.
            kafka, kohort = (answer.error_message.split(" ")[0] for answer in answers)
            assert kafka == kohort, faults


@pytest.mark.parametrize("count", [4_000, 5_000])
def test_a_subscription_is_as_large_as_a_record(consumers: Consumers, count: int) -> None:
    names = [f"{number:04}".ljust(245, "x") for number in range(count)]
    assert consumers.join("one", *names).kafka.error_code == (
        ErrorCode.UNKNOWN_SERVER_ERROR if count == 5_000 else ErrorCode.NONE
    )


def test_the_first_version_makes_an_id(consumers: Consumers) -> None:
    for epoch in (0, 2, -1, -2):
        request = ConsumerGroupHeartbeatRequest(
            group_id=consumers.id,
            member_id="",
            member_epoch=epoch,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["x"],
            topic_partitions=[],
        )
        answers = consumers.pair.peek(request, 0)
        assert answers.kafka.error_code == answers.kohort.error_code, epoch
        assert len(answers.kafka.member_id or "") == len(answers.kohort.member_id or "")


@pytest.mark.parametrize("regex", [*REFUSED, *ACCEPTED])
def test_expressions(consumers: Consumers, regex: str) -> None:
    consumers.join("one", subscribed_topic_regex=regex)
    # The group, its size and the epoch come first; an expression in use is known to be right.
    consumers.beat("other", 3, subscribed_topic_regex=regex)
    consumers.join("other", server_assignor="none", subscribed_topic_regex=regex)


def test_an_expression_that_replaces_another_makes_one_epoch(pair: Pair) -> None:
    """The old match is given up at once; the new one is there as soon as it is resolved."""
    topic, consumers = create_topic(pair, partitions=2), Consumers(pair)

    def join_until_assigned(epoch: int, regex: str) -> None:
        fields = {**JOIN, "subscribed_topic_names": [], "subscribed_topic_regex": regex}
        request = ConsumerGroupHeartbeatRequest(group_id=consumers.id, member_id="one", **fields)

        def is_assigned() -> bool:
            answers = pair.peek(request, 1)
            return all(answer.assignment.topic_partitions for answer in answers)

        wait_until(is_assigned, f"{regex} is resolved")
        assert [answer.member_epoch for answer in pair.peek(request, 1)] == [epoch] * 2

    join_until_assigned(2, f"{topic.name}|old")
    consumers.beat("one", 2, subscribed_topic_regex=f"{topic.name}|new")
    join_until_assigned(3, f"{topic.name}|new")


def test_members_that_are_unknown_or_fenced(consumers: Consumers) -> None:
    for epoch in (3, -1, -2):
        consumers.beat("nobody", epoch, instance_id="i" if epoch == -2 else None)
    consumers.join("one", instance_id="i")
    for epoch in (3, -1):
        consumers.beat("nobody", epoch)
    for epoch in (3, -1, -2):
        consumers.beat("one", epoch, instance_id="unmapped")
        consumers.beat("other", epoch, instance_id="i")
        consumers.beat("other", epoch, instance_id="unmapped")
    consumers.join("other", instance_id="i")
    for epoch in (1, 2, 3):
        consumers.beat("one", epoch, topic_partitions=[])
        consumers.beat("one", epoch, subscribed_topic_regex="(")
    consumers.beat("one", -2, instance_id="i")
    consumers.beat("one", 1, instance_id="i")
    consumers.join("other", instance_id="i")
    consumers.beat("one", 1, instance_id="i")
    consumers.beat("one", 1)
    consumers.beat("one", -1, instance_id="i")
    consumers.beat("other", -1)
    consumers.beat("other", -1)


def test_groups_of_classic_members(pair: Pair) -> None:
    """Only what may become a group of consumers does."""
    for type_, assignment in (("connect", b""), ("consumer", b"\0\0\0\0\0\0\0\0\0\1x")):
        group = Group(pair)
        # Of one topic that does not exist, in the oldest version.
        member = group.member("one", type=type_, protocols={"range": b"\0\0\0\0\0\0\0\0\0\0"})
        group.gather(member)
        share = m.SyncGroupRequestAssignment(member_id=member.id, assignment=assignment)
        member.sync(assignments=[share]).answers()
        for epoch in (0, 3, -1):
            fields: dict[str, Value] = {**JOIN, "member_epoch": epoch}
            fields |= {"group_id": group.id, "member_id": "c", "subscribed_topic_names": []}
            pair.ask(ConsumerGroupHeartbeatRequest(**fields), 1)


def test_who_may_commit_and_fetch(pair: Pair, consumers: Consumers) -> None:
    topic = create_topic(pair, partitions=4)
    here, there = (commit_topic(topic, {number: 7}) for number in (0, 9))
    nowhere = commit_topic(NOWHERE, 7)
    consumers.commit("one", 1, here)
    consumers.commit("one", 1, here, version=8)
    consumers.commit("one", -1, here)
    consumers = assigned(pair, topic)
    for version in (8, 9):
        for member_id, epoch in (("one", 2), ("one", 5), ("one", -1), ("other", 1), ("", -1)):
            consumers.commit(member_id, epoch, here, version=version)
            consumers.commit(member_id, epoch, here, nowhere, there, version=version)
    senders: list[tuple[str | None, int]] = [("one", 2), ("one", 9), ("other", 1), ("", 1)]
    for sender, epoch in (*senders, ("", -1), (None, -1)):
        asked = m.OffsetFetchRequestGroup(
            group_id=consumers.id, member_id=sender, member_epoch=epoch, topics=None
        )
        pair.ask(m.OffsetFetchRequest(groups=[asked]), 9)
    place = m.OffsetDeleteRequestPartition(partition_index=0)
    for name in (topic.name, NOWHERE.name):
        listed = m.OffsetDeleteRequestTopic(name=name, partitions=[place])
        pair.ask(m.OffsetDeleteRequest(group_id=consumers.id, topics=[listed]), 0)


def test_commits_with_an_older_epoch(pair: Pair) -> None:
    """They are accepted of what the member has had since (KIP-1251)."""
    topic = create_topic(pair, partitions=2)
    consumers = assigned(pair, topic)
    epoch = consumers.beat("one", 2).kafka.member_epoch
    consumers.join("other", topic.name)
    owned = [TopicPartitions(topic_id=topic.id, partitions=[number]) for number in range(2)]
    consumers.beat("one", epoch, topic_partitions=owned)
    for number in range(2):
        consumers.commit("one", epoch, commit_topic(topic, {number: 7}))
    answers = consumers.beat("one", epoch, topic_partitions=[])
    assert answers.kafka.member_epoch == epoch + 1
    for commit_epoch in (epoch - 1, epoch, epoch + 1, epoch + 2):
        for number in range(2):
            consumers.commit("one", commit_epoch, commit_topic(topic, {number: 7}))
        consumers.commit("one", commit_epoch, commit_topic(topic, {0: 7, 1: 7}))
