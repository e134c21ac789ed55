"""The choice of a group's assignor, and the topics that its members subscribe to.

In terms of JoinGroup, a protocol is an assignor's name with metadata for it. A group can use a
protocol that every member offers. For consumers the metadata is a ConsumerProtocolSubscription, the
only kind of metadata that is parsed here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

_SUBSCRIPTION: Final = codec(ConsumerProtocolSubscription, 0)
_VERSION_BYTES: Final = 2
_COUNT_BYTES: Final = 4

TOPICS_MAX: Final = 20_000
"""Maximum number of a group's topics, because they are hashed in one step. A group with more topics
is treated as subscribed to all topics."""

Names = tuple[str, ...]
"""Names of protocols, in order of preference."""

PartitionCount = Callable[[str], int | None]
"""Returns the partition count of a topic, None if it does not exist."""

GrownSince = Callable[[int], Mapping[str, int]]
"""Returns the topics that got more partitions since a wall-clock time, each with the time of its
last increase."""


def choose_protocol(lists: Mapping[Names, int], ranking: Names) -> str | None:
    """Choose the protocol for the next generation, None without members.

    Args:
        lists: how many members offer exactly these names, in this order of preference.
        ranking: the leader's own list.

    Each member votes for the first name in its own list that all members offer; most votes win. In
    a tie the first in the leader's list wins, so that the same group always chooses the same way
    (in Kafka the order of a hash map decides).
    """
    if not lists:
        return None
    candidates = frozenset.intersection(*(frozenset(names) for names in lists))
    votes: Counter[str] = Counter()
    for names, count in lists.items():
        vote = next((name for name in names if name in candidates), None)
        if vote is not None:
            votes[vote] += count
    ranked = [name for name in ranking if name in candidates]
    assert ranked, "members without a common protocol cannot have been admitted"
    return max(ranked, key=lambda name: votes[name])


def parse_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription; None if `metadata` is not a subscription, or has more
    than `TOPICS_MAX` topics.

    Every version begins with the fields of version 0, and only these are read. The remaining fields
    are for the assignor, and an error in them does not matter here.
    """
    count = metadata[_VERSION_BYTES : _VERSION_BYTES + _COUNT_BYTES]
    if not 0 <= int.from_bytes(count, "big", signed=True) <= TOPICS_MAX:
        return None
    try:
        subscription, _ = _SUBSCRIPTION.decode(metadata, _VERSION_BYTES)
    except DecodeError:
        return None
    return frozenset(subscription.topics)


def compare_topics(before: bytes, after: bytes) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return the topics that only the later subscription has, and those that only the earlier one
    has; None if either cannot be parsed.
    """
    old, new = parse_topics(before), parse_topics(after)
    return None if old is None or new is None else (new - old, old - new)


def union_of_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return all topics of these subscriptions; None, meaning all topics, if a subscription cannot
    be parsed or the topics are more than `TOPICS_MAX`.
    """
    wanted: set[str] = set()
    for subscription in set(subscriptions):
        topics = parse_topics(subscription)
        if topics is None:
            return None
        wanted |= topics
        if len(wanted) > TOPICS_MAX:
            return None
    return frozenset(wanted)


def hash_partition_counts(
    topics: frozenset[str] | None, partition_count: PartitionCount | None
) -> bytes | None:
    """Return a hash of (topic -> partition count), stable across restarts; None if unknown.

    If it differs from the hash stored with an assignment, topics have changed since then.
    """
    if topics is None or partition_count is None:
        return None
    digest = blake2b(digest_size=8)
    for topic in sorted(topics):
        digest.update(f"{topic}\0{partition_count(topic)}\n".encode())
    return digest.digest()
