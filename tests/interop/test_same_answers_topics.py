"""Topics are created, enlarged and deleted, or not, as in Kafka; records are deleted likewise."""

from collections.abc import Mapping, Sequence

import pytest

from kohort.protocol.types import ZERO_UUID
from tests.interop.same_answers import differences
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import (
    NOWHERE,
    batch,
    create_topic,
    fetch_request,
    fresh_name,
    offsets_request,
    produce,
    wait_led,
)
from tests.support import messages as m

CREATE_VERSIONS = range(2, 8)
DELETE_VERSIONS = range(1, 7)
PARTITIONS_VERSIONS = range(4)
RECORDS_VERSIONS = range(3)
ILLEGAL = ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n"]


def wanted(
    name: str | None = None,
    *,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Mapping[int, list[int]] | None = None,
    configs: Sequence[tuple[str, str | None]] = (),
) -> m.CreatableTopic:
    return m.CreatableTopic(
        name=fresh_name() if name is None else name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            m.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[m.CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def described(*names: str) -> m.MetadataRequest:
    return m.MetadataRequest(
        topics=[m.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )


def test_topics_are_created(pair: Pair) -> None:
    for version in CREATE_VERSIONS:
        for topic in (
            wanted(),
            wanted(partitions=3),
            wanted(configs=[("retention.ms", "1000"), ("cleanup.policy", "compact")]),
            wanted(partitions=-1, replicas=-1, assignments={0: [1], 1: [1]}),
            wanted(partitions=-1, replicas=-1, assignments={1: [1], 0: [1]}),
        ):
            pair.ask(m.CreateTopicsRequest(topics=[topic]), version)
            pair.ask_until_equal(described(topic.name), 7)
        for topic in (wanted(partitions=-1), wanted(replicas=-1)):
            pair.ask(m.CreateTopicsRequest(topics=[topic]), version)


ODD_TOPICS: dict[str, dict[str, Value]] = {
    "no partitions": {"partitions": 0},
    "fewer than no partitions": {"partitions": -2},
    "no replicas": {"replicas": 0},
    "fewer than no replicas": {"replicas": -2},
    "more replicas than brokers": {"replicas": 2},
    "many replicas": {"replicas": 32767},
    "nothing right": {"partitions": 0, "replicas": 0},
    "assignments and partitions": {"partitions": 1, "replicas": -1, "assignments": {0: [1]}},
    "assignments and replicas": {"partitions": -1, "replicas": 1, "assignments": {0: [1]}},
    "assigned to no broker": {"partitions": -1, "replicas": -1, "assignments": {0: []}},
    "assigned to a stranger": {"partitions": -1, "replicas": -1, "assignments": {0: [7]}},
    "assigned twice": {"partitions": -1, "replicas": -1, "assignments": {0: [1, 1]}},
    "assigned to one and a stranger": {
        "partitions": -1,
        "replicas": -1,
        "assignments": {0: [1, 7]},
    },
    "a gap in the assignments": {
        "partitions": -1,
        "replicas": -1,
        "assignments": {0: [1], 2: [1]},
    },
    "assignments from 1": {"partitions": -1, "replicas": -1, "assignments": {1: [1]}},
    "a negative assignment": {"partitions": -1, "replicas": -1, "assignments": {-1: [1]}},
    "unknown config": {"configs": [("no.such.config", "1")]},
    "broker's config": {"configs": [("log.retention.ms", "1")]},
    "config without a value": {"configs": [("retention.ms", None)]},
    "empty config": {"configs": [("retention.ms", "")]},
    "nameless config": {"configs": [("", "1")]},
    "no number": {"configs": [("retention.ms", "soon")]},
    "number out of range": {"configs": [("segment.bytes", "1")]},
    "number too large for its type": {"configs": [("segment.bytes", "3000000000")]},
    "no boolean": {"configs": [("preallocate", "perhaps")]},
    "no policy": {"configs": [("cleanup.policy", "wash")]},
    "empty policy": {"configs": [("cleanup.policy", "")]},
    "both policies": {"configs": [("cleanup.policy", "compact,delete")]},
    "policy twice": {"configs": [("cleanup.policy", "compact,compact")]},
    "bad throttle": {"configs": [("leader.replication.throttled.replicas", "x")]},
    "lag against lag": {
        "configs": [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]
    },
    "ratio out of range": {"configs": [("min.cleanable.dirty.ratio", "1.5")]},
    "tiered": {"configs": [("remote.storage.enable", "true")]},
    "a config twice": {"configs": [("retention.ms", "1"), ("retention.ms", "2")]},
    "spaces around": {"configs": [("retention.ms", " 1000 ")]},
    "capitals": {"configs": [("cleanup.policy", "Compact"), ("preallocate", "TRUE")]},
    "more partitions than one request may ask for": {"partitions": 10_001},
}


SHOWN_AS_UNDERSTOOD = {"policy twice", "spaces around"}


@pytest.mark.parametrize("name", ODD_TOPICS)
def test_odd_topics(pair: Pair, name: str) -> None:
    topic = wanted(**ODD_TOPICS[name])
    for version in CREATE_VERSIONS:
        for validate_only in (True, False):
            topic = wanted(**ODD_TOPICS[name])
            request = m.CreateTopicsRequest(topics=[topic], validate_only=validate_only)
            differs = differences.PARSED_CONFIGS if name in SHOWN_AS_UNDERSTOOD else None
            pair.ask(request, version, differs=differs if version >= 5 else None)
    pair.ask_until_equal(described(topic.name), 7)


def test_illegal_names(pair: Pair) -> None:
    for version in CREATE_VERSIONS:
        for name in (*ILLEGAL, "__cluster_metadata"):
            pair.ask(m.CreateTopicsRequest(topics=[wanted(name)]), version)


def test_names_that_are_taken(pair: Pair) -> None:
    topic = create_topic(pair, name=fresh_name("a.b_c"))
    for version in CREATE_VERSIONS:
        for name in (topic.name, topic.name.replace(".", "_"), topic.name.replace("_", ".")):
            for validate_only in (True, False):
                request = m.CreateTopicsRequest(topics=[wanted(name)], validate_only=validate_only)
                pair.ask(request, version)


def test_names_twice_in_a_request(pair: Pair) -> None:
    for version in CREATE_VERSIONS:
        name = fresh_name()
        request = m.CreateTopicsRequest(topics=[wanted(name), wanted(), wanted(name, partitions=2)])
        pair.ask(request, version)
        name = fresh_name("a.b")
        request = m.CreateTopicsRequest(topics=[wanted(name), wanted(name.replace(".", "_"))])
        pair.ask(request, version, differs=differences.COLLIDING_NAMES)
        pair.ask(m.CreateTopicsRequest(topics=[]), version)


def test_a_topic_that_fails_fails_alone(pair: Pair) -> None:
    for version in CREATE_VERSIONS:
        topics = [wanted(), wanted(partitions=0), wanted("a b"), wanted(replicas=3), wanted()]
        pair.ask(m.CreateTopicsRequest(topics=topics), version)


def test_validation_alone_creates_nothing(pair: Pair) -> None:
    for version in CREATE_VERSIONS:
        topic = wanted(partitions=3, configs=[("retention.ms", "1")])
        request = m.CreateTopicsRequest(topics=[topic], validate_only=True)
        pair.ask(request, version)
        pair.ask(described(topic.name), 7)


def test_creation_in_no_time(pair: Pair) -> None:
    for version in CREATE_VERSIONS:
        pair.ask(m.CreateTopicsRequest(topics=[wanted(), wanted("a b")], timeout_ms=-1), version)


def enlarged(
    name: str, count: int, assignments: Sequence[list[int]] | None = None
) -> m.CreatePartitionsTopic:
    return m.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [m.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments],
    )


def partitions_request(
    *topics: m.CreatePartitionsTopic, validate_only: bool = False, timeout_ms: int = 30_000
) -> m.CreatePartitionsRequest:
    return m.CreatePartitionsRequest(
        topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only
    )


def test_topics_are_enlarged(pair: Pair) -> None:
    topic = create_topic(pair)
    for version in PARTITIONS_VERSIONS:
        count = 2 + 2 * version
        pair.ask(partitions_request(enlarged(topic.name, count), validate_only=True), version)
        pair.ask(partitions_request(enlarged(topic.name, count)), version)
        pair.ask(partitions_request(enlarged(topic.name, count + 1, [[1]])), version)
        pair.ask_until_equal(described(topic.name), 7)
    wait_led(pair, topic, range(9))
    produce(pair, topic, batch(), partition=8)
    pair.ask(fetch_request(topic, {8: 0}), 12)


def test_topics_that_are_not_enlarged(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    for version in PARTITIONS_VERSIONS:
        for validate_only in (True, False):
            for asked in (
                enlarged(topic.name, 2),
                enlarged(topic.name, 1),
                enlarged(topic.name, 0),
                enlarged(topic.name, -1),
                enlarged(topic.name, 20_000),
                enlarged(topic.name, 3, []),
                enlarged(topic.name, 3, [[]]),
                enlarged(topic.name, 3, [[7]]),
                enlarged(topic.name, 3, [[1, 1]]),
                enlarged(topic.name, 3, [[1], [1]]),
                enlarged(topic.name, 4, [[1]]),
                enlarged(NOWHERE.name, 3),
                enlarged("", 3),
                enlarged("a b", 3),
            ):
                pair.ask(partitions_request(asked, validate_only=validate_only), version)
        twice = partitions_request(enlarged(topic.name, 3), enlarged(topic.name, 4))
        pair.ask(twice, version)
        pair.ask(partitions_request(), version)
        topics = [enlarged(topic.name, 3), enlarged(topic.name, 1), enlarged(NOWHERE.name, 3)]
        for late in topics:
            pair.ask(partitions_request(late, timeout_ms=-1), version)
    pair.ask_until_equal(described(topic.name), 7)


def delete_request(version: int, *names: str, timeout_ms: int = 30_000) -> m.DeleteTopicsRequest:
    if version < 6:
        return m.DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    topics = [m.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    return m.DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def test_topics_are_deleted(pair: Pair) -> None:
    for version in DELETE_VERSIONS:
        one, two = create_topic(pair), create_topic(pair)
        produce(pair, one, batch())
        pair.ask(delete_request(version, one.name, NOWHERE.name, two.name), version)
        pair.ask_until_equal(described(one.name, two.name), 7)
        pair.ask(delete_request(version, one.name), version)
        pair.ask(fetch_request(one), 12, differs=differences.UNKNOWN_PARTITION)
        pair.ask(fetch_request(one), 13, differs=differences.UNKNOWN_PARTITION)


def test_a_deleted_topic_comes_again_without_its_records(pair: Pair) -> None:
    topic = create_topic(pair)
    produce(pair, topic, batch())
    pair.ask(delete_request(6, topic.name), 6)
    pair.ask_until_equal(described(topic.name), 7)
    again = create_topic(pair, name=topic.name)
    pair.ask(fetch_request(again), 12)
    pair.ask(fetch_request(topic), 13, differs=differences.UNKNOWN_PARTITION)


def test_topics_that_are_not_deleted(pair: Pair) -> None:
    topic = create_topic(pair)
    for version in DELETE_VERSIONS:
        for name in (NOWHERE.name, *ILLEGAL):
            pair.ask(delete_request(version, name), version)
        pair.ask(delete_request(version, topic.name, topic.name), version)
        pair.ask(delete_request(version, topic.name, NOWHERE.name, timeout_ms=-1), version)
        pair.ask(delete_request(version), version)
    pair.ask(described(topic.name), 7)


def test_deletion_by_id(pair: Pair) -> None:
    topic = create_topic(pair)
    name = m.DeleteTopicState(name=topic.name, topic_id=ZERO_UUID)
    by_id = m.DeleteTopicState(name=None, topic_id=topic.id)
    for topics in (
        [m.DeleteTopicState(name=topic.name, topic_id=topic.id)],
        [m.DeleteTopicState(name=None, topic_id=ZERO_UUID)],
        [m.DeleteTopicState(name=None, topic_id=NOWHERE.id)],
        [name, by_id],
        [by_id, name],
        [by_id, by_id],
        [by_id],
    ):
        pair.ask(m.DeleteTopicsRequest(topics=topics, timeout_ms=30_000), 6)
    pair.ask_until_equal(described(topic.name), 7)


def records_request(name: str, offsets: Mapping[int, int]) -> m.DeleteRecordsRequest:
    partitions = [
        m.DeleteRecordsPartition(partition_index=index, offset=offset)
        for index, offset in offsets.items()
    ]
    topics = [m.DeleteRecordsTopic(name=name, partitions=partitions)]
    return m.DeleteRecordsRequest(topics=topics, timeout_ms=10_000)


def test_records_are_deleted(pair: Pair) -> None:
    for version in RECORDS_VERSIONS:
        topic = create_topic(pair, partitions=2)
        produce(pair, topic, *(batch(b"1", b"2", b"3") for _ in range(4)))
        for offsets in ({0: 0}, {0: 2, 1: 0}, {0: 1}, {0: 6, 1: -1}, {0: -1, 1: 0}, {0: 12}):
            pair.ask(records_request(topic.name, offsets), version)
            pair.ask(offsets_request(topic, -2, 0, 1), 1)
            pair.ask(fetch_request(topic, 6), 12)
        produce(pair, topic, batch())
        pair.ask(fetch_request(topic, 12), 12)


def test_records_that_are_not_deleted(pair: Pair) -> None:
    topic = create_topic(pair)
    compacted = create_topic(pair, configs={"cleanup.policy": "compact"})
    both = create_topic(pair, configs={"cleanup.policy": "compact,delete"})
    for one in (topic, compacted, both):
        produce(pair, one, batch(b"1", b"2"))
    for version in RECORDS_VERSIONS:
        for name, offsets in (
            (topic.name, {0: 3}),
            (topic.name, {0: -2, 1: 0}),
            (topic.name, {-1: 0}),
            (topic.name, {}),
            (NOWHERE.name, {0: 0}),
            (compacted.name, {0: 1}),
            (both.name, {0: 1}),
            ("", {0: 1}),
        ):
            pair.ask(records_request(name, offsets), version)
        pair.ask(m.DeleteRecordsRequest(topics=[], timeout_ms=1000), version)
