"""What the record of a consumer group's rebalance says of its members and of its waits."""

from collections.abc import Iterable

from kohort.groups.history.consumers import ConsumerFacts, Progress
from kohort.groups.history.limits import cut_id, cut_ids
from kohort.groups.history.model import MemberPartitions, PartitionCounts, WaitedFor


def partitions(member: Progress | None) -> MemberPartitions:
    """Return what a member gave up and gained."""
    if member is None:
        return MemberPartitions()
    gave_up = [f"{topic}-{partition}" for topic, partition in sorted(member.revoking)]
    gained = [f"{topic}-{partition}" for topic, partition in sorted(member.gained)]
    return MemberPartitions(
        known=True,
        given_up=cut_ids(gave_up),
        given_up_count=len(gave_up),
        gained=cut_ids(gained),
        gained_count=len(gained),
    )


def partition_counts(facts: ConsumerFacts) -> PartitionCounts:
    """Return the counts over all members. Members that kept everything took no step, and their
    partitions are not counted.
    """
    gained: set[tuple[str, int]] = set()
    given_up: set[tuple[str, int]] = set()
    kept = 0
    for member in facts.members.values():
        gained.update(member.gained)
        given_up.update(member.revoking)
        kept += max(member.assigned_count - len(member.gained), 0)
    moved = len(gained & given_up)
    return PartitionCounts(
        known=True, kept=kept, moved=moved, gained=len(gained), given_up=len(given_up)
    )


def waited_for(
    facts: ConsumerFacts, present: Iterable[str], began_ms: int, end_ms: int, *, is_over: bool
) -> WaitedFor:
    """Return the longest wait: for the assignment interval, for members to give up partitions, or
    for members to send a heartbeat.

    Args:
        facts: the facts.
        present: ids of the members that belong to the group.
        began_ms: when the rebalance began.
        end_ms: when it ended, or now.
        is_over: whether it has ended.
    """
    if facts.assigned_ms is None:
        return WaitedFor(phase="assign", ms=end_ms - began_ms)
    waits = [WaitedFor(phase="assign", ms=facts.assigned_ms - began_ms)]
    for member_id, member in facts.members.items():
        told_ms = member.told_ms
        if told_ms is None or not member.revoking:
            continue
        until_ms = end_ms if member.revoked_ms is None else member.revoked_ms
        if member.revoked_ms is not None or not is_over:
            ids = (cut_id(member_id),)
            waits.append(WaitedFor(phase="revoke", member_ids=ids, ms=until_ms - told_ms))
    times = [
        (member.told_ms, member_id)
        for member_id, member in facts.members.items()
        if member.told_ms is not None
    ]
    untold = [] if is_over else [m for m in present if _is_untold(facts, m)]
    if untold:
        since_ms = max([facts.assigned_ms, *(at_ms for at_ms, _ in times)])
        waits.append(WaitedFor(phase="tell", member_ids=cut_ids(untold), ms=end_ms - since_ms))
    elif times:
        last_ms, last_id = max(times)
        others = [at_ms for at_ms, member_id in times if member_id != last_id]
        since_ms = max([facts.assigned_ms, *others])
        waits.append(WaitedFor(phase="tell", member_ids=(cut_id(last_id),), ms=last_ms - since_ms))
    longest = max(waits, key=lambda wait: wait.ms)
    return longest if longest.ms > 0 else WaitedFor()


def _is_untold(facts: ConsumerFacts, member_id: str) -> bool:
    member = facts.members.get(member_id)
    return member is None or member.told_ms is None
