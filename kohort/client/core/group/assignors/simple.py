"""Assignors that ignore the previous assignment: ranges of each topic, and round robin."""

from collections.abc import Mapping, Sequence
from itertools import cycle

from kohort.client.core.group.assignors.assignor import (
    Assignment,
    Assignor,
    GroupMember,
    partitions_of,
    subscribers_by_topic,
)


class RangeAssignor(Assignor):
    """`range`, Java's default: each member gets a contiguous range of the partitions of each topic.

    Topics with equal partition counts and subscribers are divided identically, so that one member
    gets the same partition numbers of all of them, as joins of streams require. If topics have few
    partitions, the result is uneven: the first members get one more of every topic.
    """

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]
    ) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        for topic, subscribers in sorted(subscribers_by_topic(partition_counts, members).items()):
            partitions = partitions_of(topic, partition_counts[topic])
            each, more = divmod(len(partitions), len(subscribers))
            begin = 0
            for place, member in enumerate(subscribers):
                end = begin + each + (place < more)
                assignment[member.member_id] += partitions[begin:end]
                begin = end
        return assignment


class RoundRobinAssignor(Assignor):
    """`roundrobin`: the members get the partitions of all topics one by one, in turn.

    The result is as even as possible if all members subscribe to the same topics. When a member
    joins or leaves, nearly all partitions move.
    """

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
