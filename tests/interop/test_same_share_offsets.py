"""Offsets of share groups (KIP-932): describe, alter and delete them, and where delivery begins."""

import time
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import share_group_offsets as offsets
from tests.interop.same_answers import scenes
from tests.interop.same_answers.deliberate import SILENT
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import NOWHERE, delete_topic
from tests.interop.same_answers.share import (
    ACCEPT,
    RELEASE,
    ShareGroup,
    acquired,
    create_topic,
    delete_records,
    errors,
    produce,
)
from tests.interop.same_answers.share_differences import (
    CLAMPED_OFFSET,
    LIVE_OFFSETS,
    NEGATIVE_OFFSET,
)
from tests.interop.same_answers.share_scenes import Scene
from tests.support import messages as m
from tests.support.waiting import wait_until

NONE: Final = ErrorCode.NONE
UNKNOWN_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def scene(pair: Pair) -> Scene:
    return Scene(pair)


@pytest.mark.parametrize("version", [0, 1])
def test_descriptions(pair: Pair, version: int) -> None:
    topic, other = create_topic(pair, partitions=2), create_topic(pair)
    group = ShareGroup(pair, topic)
    group.describe_offsets((other, 0), (NOWHERE, 0), version=version)
    named = offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[0])
    asked = [
        offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
        for group_id in ("", "no-such-share-group", Group(pair).id)
        for topics in (None, [], [named] if group_id else [])
    ]
    for one in asked:
        pair.ask(offsets.DescribeShareGroupOffsetsRequest(groups=[one]), version)
    pair.ask(offsets.DescribeShareGroupOffsetsRequest(groups=asked), version)


def test_progress(scene: Scene) -> None:
    """Kafka shows the start before the last change."""
    scene.group.describe_offsets(differs=LIVE_OFFSETS)
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.check(scene.one, NONE, (4, 5, [ACCEPT]))
    answers = scene.group.describe_offsets()
    (partition,) = answers.kafka.groups[0].topics[0].partitions
    assert (partition.start_offset, partition.lag) == (0, 8)
    scene.check(scene.one, NONE, (0, 1, [ACCEPT]))
    scene.group.describe_offsets(differs=LIVE_OFFSETS)
    scene.check(scene.one, NONE, (6, 9, [ACCEPT]))
    answers = scene.group.describe_offsets(scene.place)
    (partition,) = answers.kafka.groups[0].topics[0].partitions
    assert (partition.start_offset, partition.lag) == (2, 2)


def test_a_group_with_members_is_not_changed(pair: Pair) -> None:
    topic = create_topic(pair)
    group = ShareGroup(pair, topic)
    group.join("one", topic)
    for places in ({}, {(topic, 0): 3}, {(NOWHERE, 0): -9}):
        answers = group.alter_offsets(places)
        assert answers.kafka.error_code == ErrorCode.NON_EMPTY_GROUP
    for topics in ((), (topic,), (NOWHERE,)):
        answers = group.delete_offsets(*topics)
        assert answers.kafka.error_code == ErrorCode.NON_EMPTY_GROUP
    pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)


def test_groups_that_do_not_exist_or_are_of_another_type(pair: Pair) -> None:
    topic = create_topic(pair)
    classic = Group(pair)
    classic.settle(classic.member("one"))
    group = ShareGroup(pair)
    for group_id in ("", classic.id):
        group.id = group_id
        group.alter_offsets({(topic, 0): 3})
        group.alter_offsets({})
        group.delete_offsets(topic)
        group.delete_offsets()
    group.id = scenes.fresh_name("share")
    group.delete_offsets(topic)


def test_an_alteration_creates_the_group(pair: Pair) -> None:
    topic = create_topic(pair)
    produce(pair, topic, 5, 5)
    group = ShareGroup(pair)
    places = {(topic, 0): 5, (topic, 9): 3, (NOWHERE, 0): 3}
    assert sorted(errors(group.alter_offsets(places).kafka)) == [NONE, *[UNKNOWN_PARTITION] * 2]
    group.describe_offsets()
    with group.session() as session:
        assert acquired(session.fetch([(topic, 0)]).kafka) == [(0, 5, 9, 1)]
    group.beat("one", 0, topic)


@pytest.mark.parametrize("start", [0, 3, 10, -1])
def test_offsets_that_are_altered(scene: Scene, start: int) -> None:
    """What was finished before is delivered again from there."""
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.check(scene.one, NONE, (0, 4, [ACCEPT]), (8, 9, [RELEASE]))
    # Kafka serves its window on while a session is open.
    scene.one.line.close()
    scene.one.epoch = 0
    time.sleep(0.3)
    scene.group.alter_offsets({scene.place: start})
    produce(scene.pair, scene.topic, 2)
    assert scene.fetch(scene.one)[::2][:1] == [max(start, 0)]


def test_offsets_outside_of_the_log(pair: Pair) -> None:
    scene = Scene(pair)
    scene.group.alter_offsets({scene.place: 99})
    scene.group.describe_offsets(differs=CLAMPED_OFFSET)
    scene.group.alter_offsets({scene.place: -5}, differs=NEGATIVE_OFFSET)


def test_offsets_that_are_deleted(pair: Pair) -> None:
    topic, other = create_topic(pair), create_topic(pair)
    group = ShareGroup(pair, topic)
    answers = group.delete_offsets(topic, other, NOWHERE)
    found = [one.error_code for one in answers.kafka.responses]
    assert sorted(found) == [NONE, *[UNKNOWN_PARTITION] * 2]
    group.describe_offsets()
    group.delete_offsets(topic)
    group.delete_offsets()
    # A member has the partitions initialized again.
    group.join("one", topic)


def test_a_group_that_is_deleted(pair: Pair) -> None:
    topic = create_topic(pair)
    group = ShareGroup(pair, topic)
    for _ in range(2):
        pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
    group.describe_offsets()
    group.initialize(topic)
    group.beat("one", 0, topic)


@pytest.mark.parametrize("reset", ["earliest", "latest", "by_duration:PT90M"])
def test_where_delivery_begins(pair: Pair, reset: str) -> None:
    """Records were produced an hour ago."""
    topic = create_topic(pair)
    group = ShareGroup(pair)
    group.configure(share_auto_offset_reset=reset)
    produce(pair, topic, 5)
    group.initialize(topic)
    # Kafka resolves it when it loads the partition, again and again while no session is open.
    with group.load("keeper", topic), group.session() as session:
        produce(pair, topic, 3)
        first = 5 if reset == "latest" else 0
        answers = session.fetch([(topic, 0)])
        assert acquired(answers.kafka) == [(0, first, 7, 1)]


def test_a_topic_whose_first_records_are_deleted(pair: Pair) -> None:
    topic = create_topic(pair)
    produce(pair, topic, 3, 3)
    delete_records(pair, topic, 3)
    group = ShareGroup(pair, topic)
    with group.session() as session:
        assert acquired(session.fetch([(topic, 0)]).kafka) == [(0, 3, 5, 1)]
        group.describe_offsets(differs=LIVE_OFFSETS)


def test_a_partition_that_is_added_begins_at_0(pair: Pair) -> None:
    topic = create_topic(pair)
    group = ShareGroup(pair, topic)
    group.configure(share_auto_offset_reset="latest")
    grown = m.CreatePartitionsTopic(name=topic.name, count=2, assignments=None)
    pair.ask(m.CreatePartitionsRequest(topics=[grown], timeout_ms=30_000, validate_only=False), 3)
    scenes.wait_led(pair, topic, [1])
    produce(pair, topic, 3, partition=1)
    group.join("one", topic)
    with group.session() as session:
        assert acquired(session.fetch([(topic, 1)]).kafka) == [(1, 0, 2, 1)]


def test_a_topic_that_is_deleted(pair: Pair) -> None:
    topic, other = create_topic(pair), create_topic(pair)
    group = ShareGroup(pair, topic, other)
    delete_topic(pair, topic)
    everything = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group.id, topics=None)
    request = offsets.DescribeShareGroupOffsetsRequest(groups=[everything])

    def is_forgotten() -> bool:
        # Kafka 4.4.0 does not answer at times while the topic is being deleted.
        return all(
            answer != SILENT and len(answer.groups[0].topics) == 1
            for answer in pair.peek(request, 1)
        )

    wait_until(is_forgotten, "the group has forgotten the topic")
    group.describe_offsets(differs=LIVE_OFFSETS)
    group.describe_offsets((topic, 0))
    group.delete_offsets(topic)
