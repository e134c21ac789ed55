"""The name of a partition, as users and assignors write it."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from kohort.protocol.messages import consumer_protocol


class TopicPartition(NamedTuple):
    """One partition; a plain tuple in all other respects."""

    topic: str
    partition: int


def by_topic(partitions: Iterable[TopicPartition]) -> list[consumer_protocol.TopicPartition]:
    """Partitions as the wire has them: sorted, those of each topic together."""
    return [
        consumer_protocol.TopicPartition(
            topic=topic, partitions=[partition.partition for partition in group]
        )
        for topic, group in groupby(sorted(partitions), attrgetter("topic"))
    ]


def from_topics(topics: Iterable[consumer_protocol.TopicPartition]) -> list[TopicPartition]:
    """The partitions behind what the wire has, in its order."""
    return [TopicPartition(one.topic, index) for one in topics for index in one.partitions]
