"""Read-only access to partitions, for metrics and the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.topics.partition import Partition
    from kohort.broker.topics.topic import Topic


def open_partition(topics: TopicManager, topic: Topic, index: int) -> Partition | None:
    """Return the partition, opened if necessary; None if it is empty or was deleted.

    Partitions not used since the start are not open, but their content counts. Those of internal
    topics are opened at the start if they have content, and get a directory only when they are
    used: reading metrics must not count as use.
    """
    partition = topic.partitions.peek(index)
    if partition is None and not topic.is_internal and topics.get(topic.name) is topic:
        partition = topic.partitions[index]
    return partition


class Readable(NamedTuple):
    start: int
    """The log start offset."""
    end: int

    def lag(self, committed: int) -> int | None:
        """Return the number of records that a group with this committed offset has not read; None
        if the offset is negative, which clients treat as no commit.

        Records below the log start do not count: they are deleted, so no consumer can read them.
        The lag is 0 if the offset is beyond the end, because the topic was created again or the
        client committed an offset that does not exist yet.
        """
        return None if committed < 0 else max(0, self.end - max(committed, self.start))


def readable(topics: TopicManager, topic_name: str, index: int) -> Readable | None:
    """Return the readable offsets of a partition, None if it does not exist."""
    topic = topics.get(topic_name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    partition = open_partition(topics, topic, index)
    if partition is None:
        return Readable(0, 0)
    return Readable(partition.log.log_start_offset, partition.high_watermark)
