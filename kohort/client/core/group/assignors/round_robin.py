"""Assigns all partitions of all topics to the members round robin.

Optimally even if all members subscribe to the same topics. A member that joins or leaves moves
nearly all partitions.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle

from kohort.client.core.group.assignors.assignor import (
    Assignment,
    Assignor,
    GroupMember,
    partitions_of,
    subscribers_by_topic,
)


class RoundRobinAssignor(Assignor):
    """`roundrobin`."""

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]
    ) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        circle = cycle(sorted(members, key=lambda member: member.order))
        for topic in sorted(subscribers_by_topic(partition_counts, members)):
            for partition in partitions_of(topic, partition_counts[topic]):
                taker = next(member for member in circle if topic in member.topics)
                assignment[taker.member_id].append(partition)
        return assignment
