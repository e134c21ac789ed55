"""Read-only access to partitions, for metrics and the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.groups_seen import Readable

if TYPE_CHECKING:
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.topics.partition import Partition
    from kohort.broker.topics.topic import Topic


def open_partition(topics: TopicManager, topic: Topic, index: int) -> Partition | None:
    """Return the partition, opened if necessary; None if it was deleted, or is internal and unused.

    Partitions not used since the start have to be opened, because they may have data to report.
    Those of internal topics are opened at the start if they have data, and get a directory only
    when they are used: reading metrics must not count as use.
    """
    partition = topic.partitions.peek(index)
    if partition is None and not topic.is_internal and topics.get(topic.name) is topic:
        partition = topic.partitions[index]
    return partition


def readable(topics: TopicManager, topic_name: str, index: int) -> Readable | None:
    """Return the readable offsets of a partition, None if it does not exist."""
    topic = topics.get(topic_name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    partition = open_partition(topics, topic, index)
    if partition is None:
        return Readable(0, 0)
    return Readable(partition.log.log_start_offset, partition.high_watermark)
