"""Members of share groups (KIP-932): what a heartbeat is refused for, and how targets change."""

from itertools import combinations
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import consumer_group_heartbeat as consumer_beating
from kohort.protocol.messages import share_group_describe as describing
from kohort.protocol.messages import share_group_heartbeat as beating
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.groups import Group, plus
from tests.interop.same_answers.offsets import commit_topic
from tests.interop.same_answers.pair import TWIN_SETTINGS, Answers, Pair
from tests.interop.same_answers.scenes import NOWHERE
from tests.interop.same_answers.share import ShareGroup, create_topic
from tests.interop.same_answers.share_differences import CHOSEN_PARTITIONS, INITIALIZED_AT_ONCE
from tests.support import messages as m

FAULTS: Final[tuple[dict[str, Value], ...]] = (
    {"member_id": ""},
    {"member_id": "m" * 37},
    {"member_id": " "},
    {"group_id": ""},
    {"group_id": " "},
    {"rack_id": ""},
    {"rack_id": "\t"},
    {"subscribed_topic_names": None},
    {"subscribed_topic_names": []},
)
LEFT: Final = -1


def ask(pair: Pair, **fields: Value) -> Answers:
    stated = {"group_id": "g", "member_id": "one", "member_epoch": 0, **fields}
    return pair.ask(beating.ShareGroupHeartbeatRequest(**stated), 1)


@pytest.fixture
def group(pair: Pair) -> ShareGroup:
    return ShareGroup(pair)


@pytest.mark.parametrize("epoch", [0, 3, -1, -2, -3])
def test_fields_are_checked_in_the_same_order(group: ShareGroup, epoch: int) -> None:
    for faults in (*((fault,) for fault in FAULTS), *combinations(FAULTS, 2)):
        stated: dict[str, Value] = {"subscribed_topic_names": [NOWHERE.name], "group_id": group.id}
        for fault in faults:
            stated |= fault
        answers = ask(group.pair, member_epoch=epoch, **stated)
        assert answers.kafka.error_code, faults


@pytest.mark.parametrize(
    "member_id",
    ["m" * 36, "\u0436" * 36, "\u0436" * 37, "\U0001f600" * 18, "\U0001f600" * 19, " "],
)
def test_ids_of_members(group: ShareGroup, member_id: str) -> None:
    group.beat(member_id, 0, NOWHERE)
    group.beat(member_id, LEFT)


def test_a_subscription_is_as_large_as_a_record(group: ShareGroup) -> None:
    names = [f"{number:04}".ljust(245, "x") for number in range(5_000)]
    answers = ask(group.pair, group_id=group.id, subscribed_topic_names=names)
    assert answers.kafka.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_members_that_are_unknown_or_fenced(pair: Pair) -> None:
    topic = create_topic(pair)
    group = ShareGroup(pair, topic)
    for epoch in (3, LEFT, -2):
        group.beat("nobody", epoch)
    epochs = group.join("one", topic)
    for epoch in (3, LEFT, -2):
        group.beat("nobody", epoch)
    for change in (-3, -2, -1, 0, 1, 2):
        changed = plus(epochs, change)
        group.beat("one", changed)
        group.beat("one", changed, topic)


def test_a_group_that_does_not_exist(group: ShareGroup) -> None:
    for epoch in (3, LEFT):
        answers = group.beat("one", epoch)
        assert answers.kafka.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    describe(group)


def test_groups_of_other_types(pair: Pair) -> None:
    classic, consumers, offsets = (Group(pair) for _ in range(3))
    member = classic.member("one")
    classic.settle(member)
    beat = consumer_beating.ConsumerGroupHeartbeatRequest(
        group_id=consumers.id,
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["x"],
        topic_partitions=[],
    )
    pair.peek(beat, 1)
    commit = m.OffsetCommitRequest(
        group_id=offsets.id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[commit_topic(create_topic(pair), {0: 7})],
    )
    pair.ask(commit, 8)
    for other in (classic, consumers, offsets):
        for epoch in (0, 3, LEFT):
            answers = ask(pair, group_id=other.id, member_epoch=epoch, subscribed_topic_names=["x"])
            assert answers.kafka.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        request = describing.ShareGroupDescribeRequest(group_ids=[other.id])
        pair.ask(request, 1)


def test_a_full_group(group: ShareGroup) -> None:
    most = int(TWIN_SETTINGS["group.share.max.size"])
    for number in range(most):
        group.beat(f"m{number}", 0, NOWHERE)
    answers = group.beat("more", 0, NOWHERE)
    assert answers.kafka.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    group.beat("more", LEFT)
    group.beat("m0", 0, NOWHERE)
    group.beat("m0", LEFT)
    answers = group.beat("more", 0, NOWHERE)
    assert answers.kafka.error_code == ErrorCode.NONE


def test_when_an_answer_has_the_assignment(pair: Pair) -> None:
    """Epochs count from an initialized group."""
    topic, other = create_topic(pair), create_topic(pair, partitions=3)
    group = ShareGroup(pair)
    group.initialize(topic, other)
    answers = group.beat("one", 0, topic)
    assert answers.kafka.assignment.topic_partitions
    epoch = answers.each(lambda answer: answer.member_epoch)
    group.beat("one", epoch)
    group.beat("one", epoch, topic)
    group.beat("one", 0, topic)
    group.beat("one", epoch, rack_id="r")
    group.beat("one", epoch, rack_id="r", subscribed_topic_names=[])
    answers = group.beat("one", epoch, topic, other)
    epoch = answers.each(lambda answer: answer.member_epoch)
    group.beat("two", 0, topic)
    group.beat("one", epoch)
    describe(group)
    group.beat("one", LEFT)
    group.beat("two", LEFT)
    describe(group)


def test_the_first_heartbeat_of_a_group(pair: Pair) -> None:
    topic, group = create_topic(pair), ShareGroup(pair)
    answers = group.beat("one", 0, topic, differs=INITIALIZED_AT_ONCE)
    assert answers.kafka.member_epoch == 2


def test_members_divide_partitions(pair: Pair) -> None:
    """Into parts of the same sizes."""
    topic = create_topic(pair, partitions=5)
    group = ShareGroup(pair)
    group.initialize(topic)
    for count in range(1, 5):
        for number in range(count, 0, -1):
            pair.peek(group.heartbeat(f"m{number}", 0, topic), 1)
        request = describing.ShareGroupDescribeRequest(group_ids=[group.id])
        kafka, kohort = (
            sorted(
                len(assigned.partitions)
                for member in answer.groups[0].members
                for assigned in member.assignment.topic_partitions
            )
            for answer in pair.ask(request, 1, differs=CHOSEN_PARTITIONS)
        )
        assert kafka == kohort
        assert sum(kafka) == 5


def test_members_share_a_partition(pair: Pair) -> None:
    topic = create_topic(pair, partitions=1)
    group = ShareGroup(pair)
    group.initialize(topic)
    for number in range(3):
        group.beat(f"m{number}", 0, topic)
    describe(group)
    group.beat("m1", LEFT)
    # In Kafka the next heartbeat computes the target, here a timer does.
    for number in (0, 2):
        group.beat(f"m{number}", 0, topic)
    describe(group)


def describe(group: ShareGroup, *, operations: bool = False) -> describing.DescribedGroup:
    request = describing.ShareGroupDescribeRequest(
        group_ids=[group.id], include_authorized_operations=operations
    )
    found: describing.DescribedGroup = group.pair.ask(request, 1).kafka.groups[0]
    return found


def test_descriptions(pair: Pair) -> None:
    topic = create_topic(pair)
    group = ShareGroup(pair, topic)
    assert describe(group).group_state == "Empty"
    group.join("one", topic)
    for operations in (False, True):
        assert describe(group, operations=operations).group_state == "Stable"
    twice = describing.ShareGroupDescribeRequest(group_ids=[group.id, "", "nowhere", group.id])
    pair.ask(twice, 1)
