"""Subscriptions as the broker reads them, and the fingerprint of their topics."""

import pytest

from broker.core.group.member import Member
from broker.core.group.protocols import (
    choose_protocol,
    hash_partition_counts,
    parse_topics,
    subscribed_topics,
)
from protocol.codec import encode_versioned
from protocol.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from tests.unit.broker.core.group.scenario import Scenario, subscription


def a_member(*protocols: tuple[str, bytes]) -> Member:
    return Member("m", None, "c", "/h", 1, 1, protocols)


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


def test_a_group_wants_what_any_member_wants() -> None:
    members = [
        a_member(("range", subscription("t"))),
        a_member(("range", subscription("u", "t")), ("sticky", b"")),
    ]
    assert subscribed_topics(members, "consumer", "range") == frozenset({"t", "u"})


def test_one_member_that_cannot_be_read_makes_the_whole_unknown() -> None:
    members = [a_member(("range", subscription("t"))), a_member(("range", b""))]
    assert subscribed_topics(members, "consumer", "range") is None


def test_without_members_nothing_is_wanted_and_other_types_are_unknown() -> None:
    assert subscribed_topics([], "consumer", None) == frozenset()
    members = [a_member(("range", subscription("t")))]
    assert subscribed_topics(members, "connect", "range") is None
    assert subscribed_topics(members, "consumer", None) is None


def test_a_group_notices_at_once_that_a_member_wants_something_else() -> None:
    s = Scenario()
    _, follower = s.stable(2)
    assert s.group.subscribed_topics() == frozenset({"t"})
    s.join(follower, protocols=(("range", subscription("u")),))
    assert s.group.subscribed_topics() == frozenset({"t", "u"})


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
    assert choose_protocol([], None) is None
