"""Assignments in the responses about consumer groups and share groups, which have the same form."""

from collections.abc import Iterable
from typing import Final

from kohort.groups.topics import Partition, Topics, by_topic
from kohort.protocol.messages import consumer_group_describe as described
from kohort.protocol.messages.consumer_group_heartbeat import Assignment, TopicPartitions

MESSAGE_CHARS: Final = 1_000
"""Maximum length of an error message, which may contain an id of 32 KiB; the rest is cut off."""


def assignment_of(partitions: Iterable[Partition] | None) -> Assignment | None:
    """Return the assignment in the response to a heartbeat; None if the member knows it already."""
    if partitions is None:
        return None
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in by_topic(partitions).items()
        ]
    )


def described_assignment(topics: Topics, partitions: Iterable[Partition]) -> described.Assignment:
    """Return partitions with the names of their topics; those of deleted topics are left out."""
    assignment = described.Assignment(topic_partitions=[])
    for topic_id, numbers in by_topic(partitions).items():
        name = topics.name_of(topic_id)
        if name is not None:
            assignment.topic_partitions.append(
                described.TopicPartitions(
                    topic_id=topic_id, topic_name=name, partitions=list(numbers)
                )
            )
    return assignment
