"""Read-only access to partitions, for metrics and the console."""

from kohort.broker.metrics.sources import PartitionSource, TopicSource, TopicsSource


def open_partition(topics: TopicsSource, topic: TopicSource, index: int) -> PartitionSource | None:
    """Return the partition, opened if necessary; None if it is empty or gone.

    Partitions not used since the start are not open, but their content counts. Those of internal
    topics are opened at the start if they have content, and get a directory only when they are
    used: reading metrics must not count as use.
    """
    partition = topic.partitions.peek(index)
    if partition is None and not topic.is_internal and topics.get(topic.name) is topic:
        partition = topic.partitions[index]
    return partition


def high_watermark(topics: TopicsSource, topic_name: str, index: int) -> int | None:
    """Return the high watermark of a partition, None if there is none."""
    topic = topics.get(topic_name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    partition = open_partition(topics, topic, index)
    return 0 if partition is None else partition.high_watermark
