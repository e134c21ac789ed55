"""How an assignment changes the partitions of members, for the history."""

from collections.abc import Callable, Iterable

from kohort.groups.events import MemberAssigned, SharePartitionsAssigned
from kohort.groups.share.data import NO_PARTITIONS, ShareState
from kohort.groups.topics import Partition


def partitions_assigned(
    old: ShareState,
    new: ShareState,
    named: Callable[[Iterable[Partition]], tuple[tuple[str, int], ...]],
) -> SharePartitionsAssigned:
    """Compare the states before and after a target was computed.

    Args:
        named: returns partitions with the names of their topics.
    """
    changes = []
    for member_id, target in new.targets.items():
        before = old.targets.get(member_id, NO_PARTITIONS)
        member = new.members.get(member_id)
        if member is not None and before != target:
            kept_count = len(before & target)
            gained, given_up = named(target - before), named(before - target)
            changes.append(MemberAssigned(member.ref, kept_count, gained, given_up))
    assigned = NO_PARTITIONS.union(*new.targets.values())
    return SharePartitionsAssigned(
        new.target_epoch, len(new.members), len(assigned), tuple(changes)
    )
