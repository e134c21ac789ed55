"""The range assignor: each member gets adjoining partitions of each topic, the same ones of topics
with as many partitions, so that records with the same key meet in one member.
"""

from collections.abc import Mapping, Sequence

from kohort.groups.consumer.assignors.interface import AssignorMember
from kohort.groups.steps import SOME, Steps


def assign_ranges(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int], *, homogeneous: bool
) -> Steps[dict[str, dict[bytes, list[int]]]]:
    """Assign without regard to present targets. Static members come first, by instance id, then
    dynamic ones, by member id; so a static member keeps its partitions when its process restarts.
    """
    del homogeneous
    ordered = sorted(
        members,
        key=lambda member: (
            member.instance_id is None,
            member.member_id if member.instance_id is None else member.instance_id,
        ),
    )
    assigned: dict[str, dict[bytes, list[int]]] = {member.member_id: {} for member in members}
    subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in topics}
    for count, member in enumerate(ordered):
        for topic_id in member.topics:
            subscribers[topic_id].append(member.member_id)
        if count % SOME == 0:
            yield
    for topic_id, partition_count in topics.items():
        names = subscribers[topic_id]
        if not names:
            continue
        share, extra = divmod(partition_count, len(names))
        begin = 0
        for number, member_id in enumerate(names):
            end = begin + share + (number < extra)
            if end == begin:
                break
            assigned[member_id][topic_id] = list(range(begin, end))
            begin = end
            if number % SOME == 0:
                yield
    return assigned
