"""Subscriptions as the broker reads them, and the fingerprint of their topics."""

import pytest

from kohort.groups.classic.protocols import (
    TOPICS_MAX,
    choose_protocol,
    hash_partition_counts,
    parse_topics,
    union_of_topics,
)
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from tests.support.groups.scenario import Scenario, subscription


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_topics_are_read_from_every_version(version: int) -> None:
    metadata = encode_versioned(
        ConsumerProtocolSubscription(
            topics=["t", "u"],
            user_data=b"assignor's",
            owned_partitions=[TopicPartition(topic="t", partitions=[1])],
        ),
        version,
    )
    assert parse_topics(metadata) == frozenset({"t", "u"})


def test_newer_versions_only_append() -> None:
    assert parse_topics(b"\0\x63" + subscription("t")[2:] + b"whatever") == frozenset({"t"})


@pytest.mark.parametrize(
    "metadata", [b"", b"\0", b"\0\0", b"\0\0\0\0\0\5", b"\0\0\x7f\xff\xff\xff"]
)
def test_what_is_no_subscription_has_unknown_topics(metadata: bytes) -> None:
    assert parse_topics(metadata) is None


def test_more_topics_than_are_kept_are_unknown() -> None:
    first, more = ([f"t-{number}" for number in range(n, n + TOPICS_MAX)] for n in (0, 1))
    assert union_of_topics([subscription(*first)]) == frozenset(first)
    assert union_of_topics([subscription(*first), subscription(*more)]) is None
    assert parse_topics(subscription(*first, "more")) is None


def test_a_group_wants_what_any_member_wants() -> None:
    assert union_of_topics([subscription("t"), subscription("u", "t")]) == frozenset({"t", "u"})
    assert union_of_topics([]) == frozenset()


def test_one_member_that_cannot_be_read_makes_the_whole_unknown() -> None:
    assert union_of_topics([subscription("t"), b""]) is None


def test_only_consumers_are_read() -> None:
    s = Scenario()
    s.stable(1, protocol_type="connect")
    assert s.group.subscribed_topics() is None


def test_what_members_say_counts_from_the_next_generation_on() -> None:
    s = Scenario()
    first, second = s.stable(2)
    assert s.group.subscribed_topics() == frozenset({"t"})
    s.join(second, protocols=(("range", subscription("u")),))
    assert s.group.subscribed_topics() == frozenset({"t"})
    s.join(first)
    assert s.group.subscribed_topics() == frozenset({"t", "u"})
    s.leave(first, second)
    assert s.group.subscribed_topics() == frozenset()


def test_a_restored_group_wants_what_is_stored() -> None:
    s = Scenario()
    s.stable(2)
    s.restart()
    assert s.group.subscribed_topics() == frozenset({"t"})


def test_the_fingerprint_changes_with_topics_and_counts_only() -> None:
    counts = {"t": 3, "u": 1}
    before = hash_partition_counts(frozenset({"t", "u"}), counts.get)
    assert before is not None
    assert hash_partition_counts(frozenset({"u", "t"}), counts.get) == before
    assert hash_partition_counts(frozenset({"t"}), counts.get) != before
    assert hash_partition_counts(frozenset({"t", "u"}), {"t": 4, "u": 1}.get) != before
    assert hash_partition_counts(frozenset({"t", "u"}), {"t": 3}.get) != before


def test_there_is_no_fingerprint_of_what_is_unknown() -> None:
    counts: dict[str, int] = {}
    assert hash_partition_counts(None, counts.get) is None
    assert hash_partition_counts(frozenset({"t"}), None) is None


def test_without_members_there_is_no_protocol() -> None:
    assert choose_protocol({}, ()) is None
