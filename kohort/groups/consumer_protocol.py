"""Decodes and encodes, for the broker, the subscriptions and assignments of classic members
(JoinGroup, SyncGroup). Partitions that do not exist are left out both ways.
"""

from collections.abc import Iterable
from typing import Final

from kohort.groups.topics import Partition, Topics, by_topic
from kohort.protocol.codec import codec, decode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

_ASSIGNMENT: Final = codec(ConsumerProtocolAssignment, 0)
"""The codec of version 0; all versions have the same layout."""


def parse_subscription(
    metadata: bytes, topics: Topics
) -> tuple[tuple[str, ...], frozenset[Partition]]:
    """Return the subscribed topics, sorted, and the owned partitions.

    Raises:
        DecodeError: malformed.
    """
    parsed, _ = decode_versioned(ConsumerProtocolSubscription, metadata, newer_is_readable=True)
    return tuple(sorted(set(parsed.topics))), _by_id(parsed.owned_partitions, topics)


def parse_assignment(assignment: bytes, topics: Topics) -> frozenset[Partition]:
    """Return the assigned partitions; none for empty bytes.

    Raises:
        DecodeError: malformed, or with the user data of a custom assignor.
    """
    if not assignment:
        return frozenset()
    parsed, _ = decode_versioned(ConsumerProtocolAssignment, assignment, newer_is_readable=True)
    if parsed.user_data:
        raise DecodeError("the assignor is a custom one")
    return _by_id(parsed.assigned_partitions, topics)


def encode_share(topics: Topics, partitions: Iterable[Partition], version: int = 0) -> bytes:
    """Encode partitions as the assignment of a consumer; those of deleted topics are left out."""
    assigned: list[TopicPartition] = []
    for topic_id, numbers in by_topic(partitions).items():
        name = topics.name_of(topic_id)
        if name is not None:
            assigned.append(TopicPartition(topic=name, partitions=list(numbers)))
    encoded = _ASSIGNMENT.encode(ConsumerProtocolAssignment(assigned_partitions=assigned))
    return version.to_bytes(2, "big") + encoded


def _by_id(listed: Iterable[TopicPartition], topics: Topics) -> frozenset[Partition]:
    found: list[Partition] = []
    for entry in listed:
        topic = topics.get(entry.topic)
        if topic is not None:
            # The leader of a classic group may have assigned partitions that do not exist.
            existing = range(topic.partition_count)
            found += [(topic.topic_id, number) for number in entry.partitions if number in existing]
    return frozenset(found)
