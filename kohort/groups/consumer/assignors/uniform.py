"""The uniform assignor: as even as possible, and a member keeps what it has if that allows it.

Two algorithms, as in Kafka: one if all members have the same subscription, one for the general
case.
"""

from collections.abc import Mapping, Sequence

from kohort.groups.consumer.assignors.heterogeneous import assign_heterogeneous
from kohort.groups.consumer.assignors.interface import AssignorMember
from kohort.groups.steps import FEW, SOME, Steps


def assign_uniformly(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int], *, homogeneous: bool
) -> Steps[dict[str, dict[bytes, list[int]]]]:
    """Assign evenly over all topics together."""
    if not members:
        return {}
    if homogeneous:
        return (yield from _assign_homogeneous(members, topics))
    return (yield from assign_heterogeneous(members, topics))


def _assign_homogeneous(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int]
) -> Steps[dict[str, dict[bytes, list[int]]]]:
    subscribed = {t: topics[t] for t in topics if t in members[0].topics}
    unassigned = yield from _find_unassigned(members, subscribed)
    least, extra = divmod(sum(subscribed.values()), len(members))
    result: dict[str, dict[bytes, list[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for number, member in enumerate(members):
        quota = least
        has_extra = extra > 0
        quota += has_extra
        kept: dict[bytes, list[int]] = {}
        for topic_id, partitions in member.assigned.items():
            if topic_id not in subscribed:
                continue
            if len(partitions) <= quota:
                kept[topic_id] = list(partitions)
                quota -= len(partitions)
                continue
            if quota:
                kept[topic_id] = list(partitions[:quota])
            unassigned += [(topic_id, partition) for partition in partitions[quota:]]
            quota = 0
        # Members that follow may keep more with the extra than this one.
        if quota and has_extra and len(members) - number > extra:
            quota -= 1
            has_extra = False
        if quota:
            unfilled.append((member.member_id, quota))
        extra -= has_extra
        result[member.member_id] = kept
        if number % SOME == 0:
            yield
    begin = 0
    for member_id, quota in unfilled:
        kept = result[member_id]
        for topic_id, partition in unassigned[begin : begin + quota]:
            kept.setdefault(topic_id, []).append(partition)
        begin += quota
        yield
    return result


def _find_unassigned(
    members: Sequence[AssignorMember], topics: Mapping[bytes, int]
) -> Steps[list[tuple[bytes, int]]]:
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in topics}
    for number, member in enumerate(members):
        for topic_id, partitions in member.assigned.items():
            if topic_id in taken:
                taken[topic_id].update(partitions)
        if number % SOME == 0:
            yield
    unassigned: list[tuple[bytes, int]] = []
    for topic_id, count in topics.items():
        for begin in range(0, count, FEW * 10):
            unassigned += [
                (topic_id, partition)
                for partition in range(begin, min(begin + FEW * 10, count))
                if partition not in taken[topic_id]
            ]
            yield
    return unassigned
