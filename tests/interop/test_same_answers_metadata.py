"""Metadata and DescribeTopicPartitions show what Kafka shows, for whatever is asked."""

import pytest

from kohort.protocol.messages.describe_topic_partitions import TopicRequest
from kohort.protocol.types import ZERO_UUID
from tests.interop.same_answers import differences
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import NOWHERE, Topic, create_topic, fresh_name
from tests.support import messages as m

VERSIONS = range(14)
ALLOW_SINCE, OPERATIONS_SINCE, ID_SINCE, BY_ID_SINCE = 4, 8, 10, 12
LONG = "x" * 249
ILLEGAL = ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a,b"]


def metadata_request(version: int, *names: str, allow: bool = False) -> m.MetadataRequest:
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=name) for name in names])
    if version >= ALLOW_SINCE:
        request.allow_auto_topic_creation = allow
    return request


def test_topics_by_name(pair: Pair) -> None:
    one, two = create_topic(pair), create_topic(pair, partitions=3)
    for version in VERSIONS:
        pair.ask(metadata_request(version, one.name), version)
        pair.ask(metadata_request(version, two.name, one.name), version)
        pair.ask(metadata_request(version, one.name, one.name), version)


def test_no_topics(pair: Pair) -> None:
    for version in VERSIONS[1:]:
        pair.ask(metadata_request(version), version)


def test_all_topics(pair: Pair) -> None:
    about = [create_topic(pair).name, create_topic(pair, partitions=2).name]
    pair.ask(metadata_request(0), 0, about=about)
    for version in VERSIONS[1:]:
        request = metadata_request(version)
        request.topics = None
        pair.ask(request, version, about=about)


def test_authorized_operations(pair: Pair) -> None:
    topic = create_topic(pair)
    for version in VERSIONS[OPERATIONS_SINCE:]:
        request = metadata_request(version, topic.name, NOWHERE.name)
        request.include_topic_authorized_operations = True
        request.include_cluster_authorized_operations = version <= 10
        pair.ask(request, version)


def test_topics_that_are_not_there(pair: Pair) -> None:
    topic = create_topic(pair)
    for version in VERSIONS[ALLOW_SINCE:]:
        pair.ask(metadata_request(version, NOWHERE.name, topic.name), version)
        for name in (LONG, *ILLEGAL):
            pair.ask(metadata_request(version, name), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_created_on_demand(pair: Pair, version: int) -> None:
    """Kafka says that there is no such topic and has it a little later; here it is there at once.

    What is there in the end is the same.
    """
    request = metadata_request(version, fresh_name(), allow=True)
    pair.ask(request, version, differs=differences.CREATED_AT_ONCE)
    pair.ask_until_equal(request, version)


def test_illegal_names_are_not_created(pair: Pair) -> None:
    for version in VERSIONS:
        for name in ILLEGAL:
            pair.ask(metadata_request(version, name, allow=True), version)


def test_names_that_collide_are_not_created(pair: Pair) -> None:
    topic = create_topic(pair, name=fresh_name("with.dot"))
    for version in VERSIONS:
        request = metadata_request(version, topic.name.replace(".", "_"), allow=True)
        pair.ask(request, version)


def test_topics_by_id(pair: Pair) -> None:
    topic = create_topic(pair)
    by_id = m.MetadataRequestTopic(name=None, topic_id=topic.id)
    unknown = m.MetadataRequestTopic(name=None, topic_id=NOWHERE.id)
    for version in range(ID_SINCE, 14):
        for topics, differs in (
            ([by_id], None),
            ([unknown], None),
            ([by_id, unknown], None),
            (
                [m.MetadataRequestTopic(name=None, topic_id=ZERO_UUID)],
                differences.NEITHER_NAME_NOR_ID,
            ),
            ([m.MetadataRequestTopic(name=topic.name, topic_id=topic.id)], None),
            ([m.MetadataRequestTopic(name=NOWHERE.name, topic_id=topic.id)], None),
            ([by_id, m.MetadataRequestTopic(name=topic.name)], differences.NAMES_AND_IDS),
            ([by_id, m.MetadataRequestTopic(name=NOWHERE.name)], differences.NAMES_AND_IDS),
        ):
            request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            pair.ask(request, version, differs=differs if version >= BY_ID_SINCE else None)


def pages_request(
    *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> m.DescribeTopicPartitionsRequest:
    return m.DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=cursor and m.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


@pytest.fixture
def two(pair: Pair) -> tuple[Topic, Topic]:
    name = fresh_name()
    return (
        create_topic(pair, name=f"{name}-a", partitions=3),
        create_topic(pair, name=f"{name}-b", partitions=2),
    )


def test_pages_of_topics(pair: Pair, two: tuple[Topic, Topic]) -> None:
    names = [topic.name for topic in two]
    for asked in ([*names], [*reversed(names)], [names[1]], [*names, *names], [*names, "nowhere"]):
        for limit in (2000, 5, 4, 3, 2, 1, 0, -1):
            pair.ask(pages_request(*asked, limit=limit), 0)
            for cursor in (
                (names[0], 0),
                (names[0], 2),
                (names[0], 3),
                (names[1], 1),
                (names[0], -1),
                ("nowhere", 0),
                ("nowhere", 1),
                ("", 0),
                ("zzz", 0),
            ):
                pair.ask(pages_request(*asked, limit=limit, cursor=cursor), 0)


def test_pages_of_names_that_are_not_there(pair: Pair) -> None:
    for name in (NOWHERE.name, LONG, *ILLEGAL):
        pair.ask(pages_request(name), 0, differs=None if name else differences.EMPTY_NAME)


def test_pages_of_all_topics(pair: Pair, two: tuple[Topic, Topic]) -> None:
    names = [topic.name for topic in two]
    pair.ask(pages_request(), 0, about=names)
    pair.ask(pages_request(cursor=(names[0], 1)), 0, about=names)
