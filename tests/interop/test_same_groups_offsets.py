"""Positions, groups without members and the requests of administrators, as at Kafka."""

from collections.abc import Sequence

import pytest
from kafka import KafkaConsumer

from tests.interop.same_answers.groups import Group, subscription
from tests.interop.same_answers.offsets import (
    commit,
    commit_request,
    commit_topic,
    delete_request,
    fetch_all,
    fetch_request,
)
from tests.interop.same_answers.pair import Pair, Twins
from tests.interop.same_answers.scenes import NOWHERE, Topic, create_topic, fresh_name
from tests.support import messages as m
from tests.support.brokers.server_process import ServerProcess

COMMIT_VERSIONS = range(2, 11)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_group_that_only_stores_positions(pair: Pair, group_topic: Topic, version: int) -> None:
    group = Group(pair)
    commit(group, group_topic, {0: 5, 1: 0}, version=version)
    group.describe()
    group.list()
    fetch_all(group, group_topic)
    commit(group, group_topic, {0: 4}, version=version)
    commit(group, group_topic, {0: 3}, version=version, member_id="anybody")
    fetch_all(group, group_topic, versions=[version])
    pair.ask(delete_request(group, {group_topic.name: [0, 2]}), 0)
    fetch_all(group, group_topic, versions=[version])
    pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
    fetch_all(group, group_topic, versions=[version])
    group.describe()


def test_groups_live_in_the_same_partitions(twins: Twins, pair: Pair, group_topic: Topic) -> None:
    """Partitions of the internal topic: tools and the directory's next owner look there."""
    names = [fresh_name("place") for _ in range(20)]
    for name in names:
        commit(Group(pair, group_id=name), group_topic, {0: 5})

    at_kafka, at_kohort = (places(server, names) for server in twins)

    assert at_kafka == at_kohort
    assert len(set(at_kafka.values())) > 1


def places(server: ServerProcess, names: Sequence[str]) -> dict[str, int]:
    """The partition of __consumer_offsets in which each of these groups has a record."""
    found: dict[str, int] = {}
    consumer = KafkaConsumer(
        "__consumer_offsets",
        bootstrap_servers=server.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        exclude_internal_topics=False,
        consumer_timeout_ms=10_000,
    )
    for record in consumer:
        # A version in two bytes, then the group's name behind its length.
        name = record.key[4 : 4 + int.from_bytes(record.key[2:4])].decode()
        if name in names:
            found[name] = record.partition
        if len(found) == len(names):
            break
    consumer.close()
    return found


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_commits_in_part(pair: Pair, group_topic: Topic, version: int) -> None:
    group = Group(pair)
    request = commit_request(
        group,
        commit_topic(group_topic, {0: 1}, "x" * 4096),
        commit_topic(group_topic, {1: 2, 3: 3, -1: 4}, "x" * 4097),
        commit_topic(NOWHERE, {0: 1, 1: 1}),
    )
    pair.ask(request, version)
    fetch_all(group, group_topic)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_odd_positions(pair: Pair, group_topic: Topic, version: int) -> None:
    group = Group(pair)
    for offset in (-1, -2, (1 << 63) - 1, -(1 << 63)):
        commit(group, group_topic, {0: offset}, version=version)
        fetch_all(group, group_topic, versions=[1, 5, 8])
    for metadata in (None, "", "ä€😀", "ä" * 4096, "😀" * 2048, "😀" * 2049, "\0"):
        pair.ask(commit_request(group, commit_topic(group_topic, {1: 1}, metadata)), version)
        fetch_all(group, group_topic, versions=[1, 5, 8])
    for topics in ([], [commit_topic(group_topic, {})]):
        pair.ask(commit_request(group, *topics), version)
    twice = commit_topic(group_topic, {2: 1})
    twice.partitions += commit_topic(group_topic, {2: 7}).partitions
    pair.ask(commit_request(group, twice), version)
    fetch_all(group, group_topic, versions=[8])


@pytest.mark.parametrize("version", range(6, 11))
def test_leader_epochs(pair: Pair, group_topic: Topic, version: int) -> None:
    group = Group(pair)
    for epoch in (0, -1, 5, -7):
        topic = commit_topic(group_topic, {0: 1})
        topic.partitions[0].committed_leader_epoch = epoch
        pair.ask(commit_request(group, topic), version)
        fetch_all(group, group_topic)


def test_nothing_is_stored_for_a_group_that_is_not_there(pair: Pair, group_topic: Topic) -> None:
    for version in COMMIT_VERSIONS:
        for generation, member_id in ((0, ""), (5, "x"), (0, "x")):
            group = Group(pair)
            request = commit_request(group, commit_topic(group_topic, 1), member_id=member_id)
            request.generation_id_or_member_epoch = generation
            pair.ask(request, version)
            group.describe()


def test_members_leave_positions_behind(pair: Pair, group_topic: Topic) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two")
    group.settle(one, two)
    commit(group, group_topic, {0: 1, 1: 1}, member=one)
    two.leave()
    commit(group, group_topic, {0: 2}, member=one)
    fetch_all(group, group_topic, versions=[8])
    one.join().answers()
    commit(group, group_topic, {0: 3}, member=one)
    fetch_all(group, group_topic, versions=[8])
    one.leave()
    commit(group, group_topic, {1: 9})
    fetch_all(group, group_topic)
    group.list()
    two = group.member("two")
    group.settle(two)
    fetch_all(group, group_topic)
    commit(group, group_topic, {1: 10})


def test_positions_of_several_groups(pair: Pair, group_topic: Topic) -> None:
    groups = [Group(pair), Group(pair), Group(pair)]
    for index, group in enumerate(groups[:2]):
        commit(group, group_topic, {0: index})
    for version in range(8, 11):
        asked = [
            m.OffsetFetchRequestGroup(
                group_id=group.id,
                topics=[
                    m.OffsetFetchRequestTopic(
                        name=topic.name, topic_id=topic.id, partition_indexes=[0, 5, -1]
                    )
                    for topic in (group_topic, NOWHERE)
                ],
            )
            for group in groups
        ]
        for groups_asked in (asked[:1], asked, []):
            for stable in (False, True):
                request = m.OffsetFetchRequest(groups=groups_asked, require_stable=stable)
                pair.ask(request, version)


def test_unknown_topic_ids_follow_the_others(pair: Pair, group_topic: Topic) -> None:
    topics = [NOWHERE, group_topic, Topic("nor-this", b"\x78" * 16), create_topic(pair)]
    request = fetch_request(Group(pair), 10, {topic: [1, 0] for topic in topics})
    for answer in pair.ask(request, 10):
        found = answer.groups[0].topics
        errors = [{partition.error_code for partition in topic.partitions} for topic in found]
        assert errors == [{0}, {0}, {100}, {100}]
        assert [topic.topic_id for topic in found[2:]] == [topics[0].id, topics[2].id]


def test_who_fetches_means_nothing_to_classic_groups(pair: Pair, group_topic: Topic) -> None:
    group = Group(pair)
    one = group.member("one")
    group.settle(one)
    commit(group, group_topic, {0: 1}, member=one)
    for version in (9, 10):
        for member_id, epoch in ((None, -1), ("x", 5), (one.id, one.generation), (one.id, 99)):
            request = fetch_request(group, version, {group_topic: [0]})
            request.groups[0].member_id = member_id
            request.groups[0].member_epoch = epoch
            pair.ask(request, version)


def test_topics_that_are_read_keep_their_positions(pair: Pair, group_topic: Topic) -> None:
    other = create_topic(pair)
    group = Group(pair)
    one = group.member("one", protocols={"range": subscription(group_topic.name)})
    two = group.member("two", protocols={"range": subscription(group_topic.name)})
    group.settle(one, two)
    for topic in (group_topic, other):
        commit(group, topic, {0: 1}, member=one)
    asked = delete_request(group, {group_topic.name: [0, 1], other.name: [0, 7], NOWHERE.name: [0]})
    pair.ask(asked, 0)
    fetch_all(group, group_topic, versions=[8])
    two.leave()
    pair.ask(asked, 0)
    one.leave()
    pair.ask(asked, 0)
    fetch_all(group, group_topic, versions=[8])


def test_members_with_unknown_metadata_read_everything(pair: Pair, group_topic: Topic) -> None:
    for metadata in (b"", b"\x00", b"\x00\x01", b"\x00\x00\x00\x00\x00\x09", b"x" * 40):
        group = Group(pair)
        one = group.member("one", protocols={"range": metadata})
        group.settle(one)
        commit(group, group_topic, {0: 1}, member=one)
        pair.ask(delete_request(group, {group_topic.name: [0]}), 0)
        fetch_all(group, group_topic, versions=[8])


def test_other_types_of_groups_lose_nothing(pair: Pair, group_topic: Topic) -> None:
    group = Group(pair)
    one = group.member("one", type="connect")
    group.settle(one)
    commit(group, group_topic, {0: 1}, member=one)
    pair.ask(delete_request(group, {group_topic.name: [0], NOWHERE.name: [0]}), 0)
    fetch_all(group, group_topic, versions=[8])
    one.leave()
    pair.ask(delete_request(group, {group_topic.name: [0], NOWHERE.name: [0]}), 0)


def test_positions_go_with_their_topic(pair: Pair) -> None:
    topic, other = create_topic(pair), create_topic(pair)
    group = Group(pair)
    for one in (topic, other):
        commit(group, one, {0: 1})
    pair.ask(m.DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=10_000), 5)
    gone = fetch_request(group, 8, None)
    group.wait_until(gone, 8, lambda answer: len(answer.groups[0].topics) == 1)
    for version in range(1, 10):
        pair.ask(fetch_request(group, version, {topic: [0], other: [0]}), version)
        if version > 1:
            pair.ask(fetch_request(group, version, None), version)
    group.describe()


def test_groups_without_a_name(pair: Pair, group_topic: Topic) -> None:
    group = Group(pair, group_id="")
    one = group.member("one", session_ms=1)
    for version in range(10):
        one.join(version).answers()
    for version in range(5):
        pair.ask(m.HeartbeatRequest(group_id="", generation_id=1, member_id="x"), version)
    for version in range(6):
        request = m.SyncGroupRequest(
            group_id="",
            generation_id=1,
            member_id="x",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        pair.ask(request, version)
    for version in range(3):
        pair.ask(m.LeaveGroupRequest(group_id="", member_id="x"), version)
    for version in range(3, 6):
        leaving = m.LeaveGroupRequest(group_id="", members=[m.MemberIdentity(member_id="x")])
        pair.ask(leaving, version)
    pair.ask(delete_request(group, {group_topic.name: [0]}), 0)
    commit(group, group_topic, {0: 1})
    commit(group, group_topic, {0: 1}, generation_id_or_member_epoch=1, member_id="x")
    fetch_all(group, group_topic)
    for version in range(7):
        group.describe(version)
    pair.ask(m.DeleteGroupsRequest(groups_names=["", ""]), 2)
    pair.ask(m.DeleteGroupsRequest(groups_names=["", ""]), 3)


@pytest.mark.parametrize("group_id", ["ä b/ü€", "x" * 1000, "\n", ".."])
def test_groups_of_any_name(pair: Pair, group_topic: Topic, group_id: str) -> None:
    group = Group(pair, group_id=f"{fresh_name()}{group_id}")
    one = group.member("one")
    group.settle(one)
    commit(group, group_topic, {0: 1}, member=one)
    fetch_all(group, group_topic, versions=[1, 8])
    group.describe()
    group.list()
    one.leave()
    pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)


def test_several_groups_at_once(pair: Pair, group_topic: Topic) -> None:
    empty, settled, simple, absent = (Group(pair) for _ in range(4))
    one, two = settled.member("one"), empty.member("two")
    settled.settle(one)
    empty.settle(two)
    two.leave()
    commit(simple, group_topic, {0: 1})
    names = [group.id for group in (empty, settled, simple, absent)]
    for version in range(7):
        for asked in (names, names[::-1], [names[0]] * 3, []):
            pair.ask(m.DescribeGroupsRequest(groups=asked), version)
    for version in range(4):
        for asked in (names[1:2], [absent.id, absent.id], []):
            pair.ask(m.DeleteGroupsRequest(groups_names=asked), version)
    pair.ask(m.DeleteGroupsRequest(groups_names=names), 2)
    for group in (empty, settled, simple):
        group.list()


def test_coordinators(pair: Pair) -> None:
    # A Kafka that has just started makes its internal topics when it is first asked.
    for kind in (0, 1):
        request = m.FindCoordinatorRequest(key_type=kind)
        Group(pair).wait_until(request, 3, lambda answer: not answer.error_code)
    for version in range(7):
        for kind in (0, 1, 2, 3, -1) if version else (0,):
            for keys in (["a-group"], ["", "b"], ["a", "a"], ["x:y:1"]):
                request = m.FindCoordinatorRequest(key_type=kind)
                if version < 4:
                    request.key = keys[0]
                else:
                    request.coordinator_keys = keys
                pair.ask(request, version)
