"""Offsets that are committed in transactions are as those at Kafka, before and after their end."""

from collections.abc import Mapping

import pytest

from kohort.protocol.messages.groups import DeleteGroupsRequest
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.groups import Group, plus
from tests.interop.same_answers.offsets import commit, delete_request, fetch_request
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import NOWHERE, Topic
from tests.interop.same_answers.transactions import (
    Producer,
    commit_topic,
    producer,
    some_versions,
)

STATES = ("Empty", "Ongoing", "Offsets", "CompleteCommit", "CompleteAbort")
STABLE_SINCE = 7


def reached(pair: Pair, group: Group, topic: Topic, state: str) -> Producer:
    made = producer(pair)
    if state == "Offsets":
        made.add_offsets(group.id)
    elif state != "Empty":
        made.add({topic: [0]})
    if state.startswith("Complete"):
        made.end(3, commit=state == "CompleteCommit")
    return made


def look(group: Group, *topics: Topic) -> None:
    """Compare all that is told of the group's positions, with undecided ones and without."""
    for version in (1, 6, 7, 8, 10):
        for asked in (None, dict.fromkeys(topics, range(4))):
            if version == 1 and asked is None:
                continue
            request = fetch_request(group, version, asked)
            group.pair.ask(request, version)
            if version >= STABLE_SINCE:
                request.require_stable = True
                group.pair.ask(request, version)


@some_versions("commit_offsets", 3, 4, 6)
def test_who_may_commit(pair: Pair, transaction_topic: Topic, version: int) -> None:
    topic = transaction_topic
    for state in STATES:
        group = Group(pair)
        one = reached(pair, group, topic, state)
        for off in (-1, 1):
            one.commit_offsets(group.id, topic, {0: 1}, version, epoch=one.off(off))
        one.commit_offsets(group.id, topic, {0: 1}, version, pid=one.strange_pid)
        one.describe()
        one.commit_offsets(group.id, topic, {}, version)
        one.commit_offsets(group.id, topic, {0: 1}, version, topics=[])
        one.describe()
        one.commit_offsets(group.id, topic, {0: 1, 1: 2, 7: 3}, version)
        one.describe()
        look(group, topic)
        one.end(3 if version < 5 else 5)
        look(group, topic)
        one.describe()
    group, one = Group(pair), producer(pair)
    for name in ("no such id", ""):
        one.id = name
        one.commit_offsets(group.id, topic, {0: 1}, version)


@some_versions("commit_offsets", 3, 4, 6)
def test_offsets_that_cannot_be_committed(
    pair: Pair, transaction_topic: Topic, version: int
) -> None:
    group, one = Group(pair), producer(pair)
    one.add_offsets(group.id)
    one.commit_offsets("", transaction_topic, {0: 1}, version)
    one.commit_offsets(group.id, NOWHERE, {0: 1}, version)
    one.commit_offsets(group.id, transaction_topic, {0: 1, 3: 2}, version)
    one.commit_offsets(group.id, transaction_topic, {0: 2}, version, metadata="x" * 4096)
    one.commit_offsets(group.id, transaction_topic, {0: 3}, version, metadata="x" * 4097)
    one.commit_offsets(group.id, transaction_topic, {0: 4}, version, metadata=None)
    one.commit_offsets(group.id, transaction_topic, {0: -1, 1: -2}, version)
    topics = [
        commit_topic(place, dict.fromkeys(partitions, 5))
        for place in (transaction_topic, NOWHERE, transaction_topic)
        for partitions in ([0], [], [1, 3])
    ]
    one.commit_offsets(group.id, transaction_topic, {}, version, topics=topics)
    look(group, transaction_topic)
    one.end(3)
    look(group, transaction_topic)


CLAIMS: Mapping[str, Mapping[str, Value]] = {
    "nobody": {},
    "a generation alone": {"generation_id_or_member_epoch": 0},
    "a low generation alone": {"generation_id_or_member_epoch": -2},
    "an unknown member": {"member_id": "nobody", "generation_id_or_member_epoch": 1},
    "an unknown member without generation": {"member_id": "nobody"},
    "an unknown instance": {"group_instance_id": "nobody", "generation_id_or_member_epoch": 1},
    "an unknown instance with a member": {"group_instance_id": "nobody", "member_id": "nobody"},
    "the instance of another": {"group_instance_id": "static", "member_id": "nobody"},
    "the instance alone": {"group_instance_id": "static"},
}


@pytest.mark.parametrize(
    "version", [3, 6, *(pytest.param(version, marks=pytest.mark.long) for version in (4, 5))]
)
def test_groups_that_are_not_there(pair: Pair, transaction_topic: Topic, version: int) -> None:
    for claim in CLAIMS.values():
        group, one = Group(pair), producer(pair)
        one.add_offsets(group.id)
        one.commit_offsets(group.id, transaction_topic, {0: 1}, version, **claim)
        group.describe()
        group.list()
        look(group, transaction_topic)
        one.end(3, commit=version % 2 == 0)
        look(group, transaction_topic)
        group.describe()
        group.list()


@pytest.mark.parametrize("state", ["CompletingRebalance", "Stable", "Empty"])
def test_members_and_those_who_say_so(pair: Pair, transaction_topic: Topic, state: str) -> None:
    topic = transaction_topic
    group = Group(pair)
    dynamic = group.member("dynamic")
    static = group.member("static", instance="static")
    group.gather(static, dynamic)
    if state != "CompletingRebalance":
        group.assign(static, dynamic)
    if state == "Empty":
        group.leave(dynamic, version=1)
        group.leave(static, version=1)
    one = producer(pair)
    one.add_offsets(group.id)
    for version in (3, 4, 5, 6):
        for claim in CLAIMS.values():
            one.commit_offsets(group.id, topic, {0: version}, version, **claim)
        for member in (dynamic, static):
            for instance in {None, member.instance, "static", "nobody"}:
                for off in (0, 1, -1, -2):
                    one.commit_offsets(
                        group.id,
                        topic,
                        {1: version},
                        version,
                        member_id=member.id,
                        group_instance_id=instance,
                        generation_id_or_member_epoch=plus(member.generation, off),
                    )
    look(group, topic)
    one.end(3)
    look(group, topic)


@pytest.mark.parametrize("end_version", [3, 5])
@pytest.mark.parametrize("commits", [True, False])
def test_plain_commits_beside_a_transaction(
    pair: Pair, transaction_topic: Topic, end_version: int, *, commits: bool
) -> None:
    topic = transaction_topic
    group, one = Group(pair), producer(pair)
    commit(group, topic, {0: 1, 1: 1}, version=9)
    one.commit_offsets(group.id, topic, {0: 2, 1: 2, 2: 2}, 5)
    look(group, topic)
    commit(group, topic, {1: 3, 2: 3}, version=9)
    look(group, topic)
    one.commit_offsets(group.id, topic, {2: 4}, 5)
    look(group, topic)
    one.end(end_version, commit=commits)
    look(group, topic)


@pytest.mark.parametrize("first_commits", [True, False])
@pytest.mark.parametrize("second_commits", [True, False])
@pytest.mark.parametrize("in_order", [True, False])
def test_two_transactions_for_one_partition(
    pair: Pair,
    transaction_topic: Topic,
    *,
    first_commits: bool,
    second_commits: bool,
    in_order: bool,
) -> None:
    topic = transaction_topic
    group, one, two = Group(pair), producer(pair), producer(pair)
    one.commit_offsets(group.id, topic, {0: 1, 1: 1}, 5)
    two.commit_offsets(group.id, topic, {0: 2, 2: 2}, 5)
    one.commit_offsets(group.id, topic, {1: 3, 2: 3}, 5)
    look(group, topic)
    ends = [(one, first_commits), (two, second_commits)]
    for ending, commits in ends if in_order else reversed(ends):
        ending.end(5, commit=commits)
        look(group, topic)


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_and_groups_that_are_deleted_meanwhile(
    pair: Pair, transaction_topic: Topic, *, commits: bool
) -> None:
    topic = transaction_topic
    for deletes_group in (True, False):
        for has_committed in (True, False):
            group, one = Group(pair), producer(pair)
            if has_committed:
                commit(group, topic, {0: 1, 1: 1}, version=9)
            one.commit_offsets(group.id, topic, {0: 2, 1: 2, 2: 2}, 5)
            if deletes_group:
                pair.ask(DeleteGroupsRequest(groups_names=[group.id]), 2)
            else:
                pair.ask(delete_request(group, {topic.name: [0, 2]}), 0)
            look(group, topic)
            group.describe()
            one.end(5, commit=commits)
            look(group, topic)
            group.describe()


def test_offsets_after_a_fence(pair: Pair, transaction_topic: Topic) -> None:
    topic = transaction_topic
    group, one = Group(pair), producer(pair)
    one.commit_offsets(group.id, topic, {0: 1}, 5)
    one.init()
    look(group, topic)
    one.add_offsets(group.id)
    one.commit_offsets(group.id, topic, {0: 2}, 3)
    one.end(3)
    look(group, topic)


def test_one_transaction_of_several_groups_and_records(
    pair: Pair, transaction_topic: Topic
) -> None:
    topic = transaction_topic
    groups, one = [Group(pair) for _ in range(4)], producer(pair)
    for commits in (True, False, True):
        one.send(topic, 0, 12)
        for number, group in enumerate(groups):
            one.commit_offsets(group.id, topic, {0: number, 1: number}, 5)
        one.describe()
        one.end(5, commit=commits)
        for group in groups:
            look(group, topic)
