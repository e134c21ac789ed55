"""Topic by topic, each member gets a run of neighbouring partitions.

Topics with equal counts and subscribers are cut at the same places, so that one member has the same
partition numbers of all of them, which joins need. Few partitions per topic make it uneven: the
first members get one more of every topic.
"""

from collections.abc import Mapping, Sequence

from kohort.client.core.group.assignors.assignor import (
    Assignment,
    Assignor,
    GroupMember,
    partitions_of,
    subscribers_by_topic,
)


class RangeAssignor(Assignor):
    """`range`, Java's first choice."""

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
