"""Topic partitions, and the class that `Consumer.partitions_for` returns."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from kohort.protocol.messages import consumer_protocol


class TopicPartition(NamedTuple):
    """A topic name and a partition number; behaves as a plain tuple."""

    topic: str
    partition: int


def by_topic(partitions: Iterable[TopicPartition]) -> list[consumer_protocol.TopicPartition]:
    """Group partitions by topic, sorted, as in the consumer protocol."""
    return [
        consumer_protocol.TopicPartition(
            topic=topic, partitions=[partition.partition for partition in group]
        )
        for topic, group in groupby(sorted(partitions), attrgetter("topic"))
    ]


def from_topics(topics: Iterable[consumer_protocol.TopicPartition]) -> list[TopicPartition]:
    """Return the partitions of all `topics`, in the order of `topics`."""
    return [TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions]


class Node(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """A partition, its leader and its replicas (Java's class of this name)."""

    topic: str
    partition: int
    leader: Node | None
    replicas: Sequence[Node]
    """All replicas. Of an offline replica only the id is known."""
    in_sync_replicas: Sequence[Node]
    offline_replicas: Sequence[Node]
