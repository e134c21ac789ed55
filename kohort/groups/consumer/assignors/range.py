"""The range assignor: each member gets adjoining partitions of each topic, the same ones of topics
with as many partitions, so that records with the same key meet in one member.
"""

from collections.abc import Mapping, Sequence

from kohort.groups.consumer.assignors.interface import AssignorMember, subscribers_of_topics
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
    subscribers = yield from subscribers_of_topics(ordered, topics)
    for topic_id, partition_count in topics.items():
        places = subscribers[topic_id]
        if not places:
            continue
        share, extra = divmod(partition_count, len(places))
        begin = 0
        for number, place in enumerate(places):
            end = begin + share + (number < extra)
            if end == begin:
                break
            assigned[ordered[place].member_id][topic_id] = list(range(begin, end))
            begin = end
            if number % SOME == 0:
                yield
    return assigned
