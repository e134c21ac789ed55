"""The topics that a group's members subscribe to, and their partitions."""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, TypeAlias

from kohort.formats.text import counted, listed
from kohort.groups.events import Trigger, TriggerKind
from kohort.groups.steps import FEW, Steps

try:
    from xxhash import xxh3_64_intdigest as _hash
except ImportError:
    # Spark's executors replay histories with the standard library alone. There the hashes are only
    # compared with each other, and never stored.
    def _hash(data: bytes) -> int:  # type: ignore[misc]
        return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


_FORMAT: Final = b"\0"

_COUNT: Final = struct.Struct("<i").pack

_SIGNED_64: Final = struct.Struct("<q")

_UNSIGNED_64: Final = struct.Struct("<Q")

_UUID_HALVES: Final = struct.Struct(">qq")

Partition: TypeAlias = tuple[bytes, int]
"""(topic id, partition number)"""


class Topic(NamedTuple):
    topic_id: bytes
    partition_count: int


class Topics(Protocol):
    """The topics of the broker. All methods are reads of the present state."""

    @property
    def version(self) -> int:
        """A number that increases whenever a topic is created, gets partitions or is deleted."""
        ...

    def get(self, name: str) -> Topic | None:
        """Return a topic, None if it does not exist."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None if it does not exist."""
        ...

    def names(self) -> Iterable[str]:
        """All names, internal ones included; a copy."""
        ...


def by_topic(partitions: Iterable[Partition]) -> dict[bytes, tuple[int, ...]]:
    """Return partition numbers by topic id, both in ascending order."""
    result: dict[bytes, list[int]] = {}
    for topic_id, partition in partitions:
        result.setdefault(topic_id, []).append(partition)
    # Sorting numbers takes a tenth of sorting pairs.
    return {topic_id: tuple(sorted(result[topic_id])) for topic_id in sorted(result)}


def flat(partitions: Mapping[bytes, Iterable[int]]) -> frozenset[Partition]:
    """Return the set of partitions, from partition numbers by topic id."""
    return frozenset(
        (topic_id, number) for topic_id, numbers in partitions.items() for number in numbers
    )


def subscription_changes(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """Describe which topics a member has added to its subscription, and which it has removed."""
    changes = (("added", set(new).difference(old)), ("removed", set(old).difference(new)))
    return [f"{verb} {listed(sorted(names))}" for verb, names in changes if names]


def topics_changed(before: Mapping[str, Topic] | None, after: Mapping[str, Topic]) -> Trigger:
    """Return the cause of a new group epoch: subscribed topics were created, got partitions or were
    deleted.

    Args:
        before: the existing topics when the hash was last computed; None if unknown.
        after: those that exist now.
    """
    if before is None:
        return Trigger(TriggerKind.TOPICS_CHANGED)
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    changes = [_change(name, before.get(name), after.get(name)) for name in names]
    return Trigger(
        TriggerKind.TOPICS_CHANGED,
        old_protocols=tuple([name for name in names if name in before]),
        new_protocols=tuple([name for name in names if name in after]),
        detail=listed(changes),
    )


def _change(name: str, old: Topic | None, new: Topic | None) -> str:
    if new is None:
        return f"{name} was deleted"
    partitions = counted(new.partition_count, "partition")
    if old is None:
        return f"{name} was created with {partitions}"
    if old.topic_id != new.topic_id:
        return f"{name} was deleted and created again with {partitions}"
    return f"{name} grew from {old.partition_count} to {partitions}"


def existing_topics(topics: Topics, names: Iterable[str]) -> Steps[dict[str, Topic]]:
    """Return those of the named topics that exist, by name, in the order of their names."""
    existing = {}
    for count, name in enumerate(sorted(names)):
        topic = topics.get(name)
        if topic is not None:
            existing[name] = topic
        if count % FEW == 0:
            yield
    return existing


def metadata_hash(topics: Mapping[str, tuple[bytes, int]]) -> Steps[int]:
    """Return the hash of subscribed topics as Kafka computes and stores it: a signed int64; 0 if
    there is no topic. The group epoch increases when it changes.

    Args:
        topics: id and number of partitions of the existing topics, by name.
    """
    if not topics:
        return 0
    hashes = []
    for count, name in enumerate(sorted(topics)):
        hashes.append(_UNSIGNED_64.pack(_topic_hash(name, *topics[name])))
        if count % FEW == 0:
            yield
    return _signed(_hash(b"".join(hashes)))


@lru_cache(maxsize=1_000)
def _topic_hash(name: str, topic_id: bytes, partition_count: int) -> int:
    high, low = _UUID_HALVES.unpack(topic_id)
    encoded = name.encode("utf-16-le")
    parts = (
        _FORMAT,
        _SIGNED_64.pack(high) + _SIGNED_64.pack(low),
        encoded + _COUNT(len(encoded) // 2),
        _COUNT(partition_count),
        # In Kafka, the racks of a partition's replicas follow its number; this broker has no racks.
        struct.pack(f"<{partition_count}i", *range(partition_count)),
    )
    return _hash(b"".join(parts))


def _signed(value: int) -> int:
    signed: int = _SIGNED_64.unpack(_UNSIGNED_64.pack(value))[0]
    return signed
