"""TxnOffsetCommit in every version, as at Kafka: what is checked, in which order, and what is then
told of positions that wait for the end of a transaction.
"""

import pytest

from tests.interop.same_answers.each import Value
from tests.interop.same_answers.groups import Group, Member, plus
from tests.interop.same_answers.offsets import commit, delete_request, fetch_all, fetch_request
from tests.interop.same_answers.pair import Answers, Pair
from tests.interop.same_answers.scenes import NOWHERE, Topic, fresh_name
from tests.support import messages as m

VERSIONS = range(7)
MEMBERS_SINCE = 3
ADDS_SINCE = 5
every_version = pytest.mark.parametrize("version", VERSIONS)
with_members = pytest.mark.parametrize("version", VERSIONS[MEMBERS_SINCE:])


class Producer:
    """One producer with a transactional id of its own, at both brokers."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.id = fresh_name("producer")
        find = m.FindCoordinatorRequest(key=self.id, key_type=1)
        group.wait_until(find, 3, lambda answer: not answer.error_code)
        request = m.InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=60_000)
        answers = group.wait_until(request, 4, lambda answer: not answer.error_code)
        self.pid = answers.each(lambda answer: answer.producer_id)
        self.epoch = answers.each(lambda answer: answer.producer_epoch)

    def add(self, version: int) -> None:
        """Add the group's partition, as producers do before they send an older TxnOffsetCommit."""
        request = m.AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            group_id=self.group.id,
        )
        if version < ADDS_SINCE:
            self.group.wait_until(request, 3, lambda answer: not answer.error_code)

    def commit(
        self,
        version: int,
        *topics: m.TxnOffsetCommitRequestTopic,
        member: Member | None = None,
        **changes: Value,
    ) -> Answers:
        """Ask, and compare."""
        request = m.TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=self.group.id,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            topics=list(topics),
        )
        if member is not None:
            request.member_id = member.id
            request.generation_id_or_member_epoch = member.generation
            request.group_instance_id = member.instance
        for name, value in changes.items():
            setattr(request, name, value)
        return self.group.pair.ask(request, version)


def at(topic: Topic, *partitions: int, metadata: str | None = "") -> m.TxnOffsetCommitRequestTopic:
    return m.TxnOffsetCommitRequestTopic(
        name=topic.name,
        topic_id=topic.id,
        partitions=[
            m.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=42 + index, committed_metadata=metadata
            )
            for index in partitions
        ],
    )


def look(group: Group, topic: Topic) -> None:
    """Compare all that is told of the group: positions, stable ones, and the group itself."""
    fetch_all(group, topic, versions=[6, 7])
    for version in (7, 8):
        for wanted in ({topic: range(4)}, None):
            request = fetch_request(group, version, wanted)
            request.require_stable = True
            group.pair.ask(request, version)
    group.describe()
    group.list()


@every_version
def test_positions_that_wait(pair: Pair, group_topic: Topic, version: int) -> None:
    group = Group(pair)
    producer = Producer(group)
    producer.add(version)
    producer.commit(version, at(group_topic, 0, 1))
    look(group, group_topic)
    commit(group, group_topic, {1: 7, 2: 8})
    look(group, group_topic)
    pair.ask(delete_request(group, {group_topic.name: [0, 1]}), 0)
    look(group, group_topic)
    producer.commit(version, at(group_topic, 2))
    pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
    look(group, group_topic)


@every_version
def test_what_does_not_exist_is_refused_alone(pair: Pair, group_topic: Topic, version: int) -> None:
    group = Group(pair)
    producer = Producer(group)
    producer.add(version)
    producer.commit(version, at(group_topic, 0), group_id="")
    producer.commit(version)
    producer.commit(version, at(NOWHERE, 0))
    producer.commit(version, at(group_topic, 9))
    producer.commit(version, at(group_topic, 0), at(group_topic), at(group_topic, 1))
    producer.commit(version, at(group_topic, 0), at(group_topic, 9), at(group_topic, 1))
    producer.commit(version, at(group_topic, 0), at(NOWHERE, 0, 1), at(NOWHERE), at(group_topic, 1))
    producer.commit(version, at(group_topic, 0, metadata="x" * 4_097), at(group_topic, 1))
    look(group, group_topic)


@every_version
def test_the_transaction_is_asked_first(pair: Pair, group_topic: Topic, version: int) -> None:
    group = Group(pair)
    producer = Producer(group)
    stranger: dict[str, Value] = {}
    if version >= MEMBERS_SINCE:
        stranger = {"member_id": "nobody", "generation_id_or_member_epoch": 5}
    if version < ADDS_SINCE:
        producer.commit(version, at(group_topic, 0))
        producer.commit(version, at(group_topic, 0), **stranger)
    producer.commit(version, at(group_topic, 0), producer_epoch=7, **stranger)
    producer.commit(version, at(group_topic, 0), producer_id=987_654, **stranger)
    producer.commit(version, at(group_topic, 0), transactional_id=fresh_name("unknown"), **stranger)
    look(group, group_topic)


@with_members
def test_a_group_that_does_not_exist(pair: Pair, group_topic: Topic, version: int) -> None:
    group = Group(pair)
    producer = Producer(group)
    producer.add(version)
    for generation in (0, 1):
        producer.commit(
            version,
            at(group_topic, 0),
            generation_id_or_member_epoch=generation,
            member_id="somebody",
        )
    producer.commit(version, at(group_topic, 0), member_id="somebody")
    look(group, group_topic)
    # Now there is one, without members.
    producer.commit(version, at(group_topic, 1), generation_id_or_member_epoch=0)
    producer.commit(version, at(group_topic, 1), member_id="x", group_instance_id="i")
    look(group, group_topic)


@with_members
@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance"])
def test_a_group_with_members(pair: Pair, group_topic: Topic, version: int, state: str) -> None:
    group = Group(pair)
    leader, other = group.member("a", "A"), group.member("b")
    group.gather(leader, other)
    if state == "Stable":
        group.assign(leader, other)
    group.check_state(state)
    producer = Producer(group)
    producer.add(version)
    place = at(group_topic, 0)
    producer.commit(version, place)
    producer.commit(version, place, member=leader)
    producer.commit(version, place, member=other)
    for change in (-1, 1):
        wrong = plus(leader.generation, change)
        producer.commit(version, place, member=leader, generation_id_or_member_epoch=wrong)
    producer.commit(version, place, member=leader, generation_id_or_member_epoch=-1)
    producer.commit(version, place, member=leader, member_id="nobody")
    producer.commit(version, place, member=leader, group_instance_id=None)
    producer.commit(version, place, member=leader, group_instance_id="unknown")
    producer.commit(version, place, member=other, group_instance_id="A")
    stale = plus(other.generation, -1)
    producer.commit(
        version, place, member=other, group_instance_id="A", generation_id_or_member_epoch=stale
    )
    producer.commit(version, place, member_id="nobody")
    producer.commit(version, place, group_instance_id="A")
    producer.commit(version, place, generation_id_or_member_epoch=leader.generation)
    look(group, group_topic)
