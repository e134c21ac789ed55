"""The parts of a consumer group's rebalance record: members, partitions, stopped time, waits."""

from collections.abc import Container, Iterable, Iterator
from typing import Any

from kohort.groups.events import AT_ONCE, MemberRef
from kohort.groups.history.consumers import ConsumerFacts, Partition, Progress
from kohort.groups.history.facts import RebalanceFacts
from kohort.groups.history.model import (
    MemberPartitions,
    PartitionCounts,
    RebalanceOutcome,
    WaitedFor,
)
from kohort.groups.history.names import PARTITIONS_LISTED, cut_id, cut_ids
from kohort.groups.kinds import GroupKind


def members(facts: RebalanceFacts, consumers: ConsumerFacts) -> tuple[MemberRef, ...]:
    """Return the previous members that remain, and the new ones."""
    found = {member.member_id: member for member in facts.started.members}
    found |= {member_id: row.member for member_id, row in consumers.members.items()}
    return tuple([member for member_id, member in found.items() if member_id not in facts.gone])


def member_fields(
    facts: RebalanceFacts, member_id: str, progress: Progress | None
) -> dict[str, Any]:
    """Return the fields of a member's timeline that only consumer groups have."""
    started, began_ms = facts.started, facts.began.ms
    before = started.epochs.get(member_id)
    is_classic = member_id in started.classic_ids
    if progress is not None and progress.is_classic is not None:
        is_classic = progress.is_classic
    kind = GroupKind.CLASSIC if is_classic else GroupKind.CONSUMER
    fields = {"type": str(kind.value), "epoch_before": before, "epoch": before}
    if progress is None:
        return fields
    if progress.epoch is not None:
        fields["epoch"] = progress.epoch
    for name in ("revoked_ms", "reached_ms", "completed_ms"):
        at_ms = getattr(progress, name)
        fields[name] = None if at_ms is None else at_ms - began_ms
    return fields


def stop(
    facts: RebalanceFacts, consumers: ConsumerFacts, progress: Progress | None
) -> tuple[int, bool]:
    """Return how long gained partitions had no owner, and whether a revoked one now has none."""
    if progress is None:
        return 0, False
    is_over = facts.outcome in {RebalanceOutcome.STABLE, RebalanceOutcome.EMPTY}
    is_open = not is_over and not consumers.unowned.keys().isdisjoint(progress.taken)
    return progress.stopped_ms, is_open


def partitions(member: Progress | None) -> MemberPartitions:
    """Return the partitions that a member kept, gave up and gained."""
    if member is None:
        return MemberPartitions()
    return MemberPartitions(
        known=True,
        kept=_kept_count(member),
        given_up=listed_partitions(member.taken),
        given_up_count=len(member.taken),
        gained=listed_partitions(member.gained),
        gained_count=len(member.gained),
    )


def listed_partitions(names: Iterable[Partition]) -> tuple[str, ...]:
    """Return the first PARTITIONS_LISTED partitions, each as "topic-partition"."""
    listed = [f"{topic}-{partition}" for topic, partition in sorted(names)]
    return cut_ids(listed, PARTITIONS_LISTED)


def _kept_count(member: Progress) -> int:
    return max(member.assigned_count - len(member.gained), 0)


def partition_counts(facts: ConsumerFacts) -> PartitionCounts:
    """Return how many partitions the members kept, gained and gave up, and how many moved."""
    members = facts.members.values()
    return PartitionCounts(
        known=True,
        kept=sum([_kept_count(member) for member in members]),
        moved=facts.moved_count,
        gained=sum([len(member.gained) for member in members]),
        given_up=sum([len(member.taken) for member in members]),
    )


def waited_for(
    facts: ConsumerFacts,
    present: Iterable[str],
    classic_ids: Container[str],
    began_ms: int,
    end_ms: int,
    *,
    is_over: bool,
) -> WaitedFor:
    """Return the longest wait: for the assignment interval, for the disk, for a member to give up
    partitions, for a member's next heartbeat or, if it is a classic one, its next join, or for a
    member to get partitions that were free.

    Args:
        present: ids of the members that belong to the group.
        classic_ids: ids of members that used the classic protocol when the rebalance began.
        began_ms: when the rebalance began.
        end_ms: when it ended or was superseded, or now.
        is_over: whether it has ended because there was nothing left to wait for.
    """
    if facts.assigned_ms is None or facts.durable_ms is None:
        waited_ms = end_ms - began_ms
        return WaitedFor(phase="assign", ms=waited_ms) if waited_ms else WaitedFor()
    waits = [
        WaitedFor(phase="store", ms=facts.durable_ms - facts.assigned_ms),
        *_of_members(facts, end_ms, is_over=is_over),
    ]
    if facts.assigned_by != AT_ONCE:
        waits.append(WaitedFor(phase="assign", ms=facts.assigned_ms - began_ms))
    times = sorted(
        (at_ms, member_id)
        for member_id, member in facts.members.items()
        if (at_ms := member.gone_ms if member.told_ms is None else member.told_ms) is not None
    )
    ids = [] if is_over else [member_id for member_id in present if _is_untold(facts, member_id)]
    times_ms = [facts.durable_ms, *(max(at_ms, facts.durable_ms) for at_ms, _ in times)]
    if not ids and times:
        ids = [times[-1][1]]
        end_ms = times_ms.pop()
    if ids:
        is_classic = all(_is_classic(facts, member_id, classic_ids) for member_id in ids)
        phase = "join" if is_classic else "tell"
        waits.append(WaitedFor(phase=phase, member_ids=cut_ids(ids), ms=end_ms - times_ms[-1]))
    longest = max(waits, key=lambda wait: wait.ms)
    return longest if longest.ms > 0 else WaitedFor()


def _of_members(facts: ConsumerFacts, end_ms: int, *, is_over: bool) -> Iterator[WaitedFor]:
    for member_id, member in facts.members.items():
        told_ms = member.told_ms
        if told_ms is None:
            continue
        ids = (cut_id(member_id),)
        revoked_ms = member.revoked_ms
        if member.is_revoking and not is_over:
            revoked_ms = end_ms if member.gone_ms is None else member.gone_ms
        if revoked_ms is not None:
            yield WaitedFor(phase="revoke", member_ids=ids, ms=revoked_ms - told_ms)
        if member.completed_ms is not None and member.freed_ms is not None:
            since_ms = max(member.freed_ms, told_ms)
            yield WaitedFor(phase="give", member_ids=ids, ms=member.completed_ms - since_ms)


def _is_untold(facts: ConsumerFacts, member_id: str) -> bool:
    member = facts.members.get(member_id)
    return member is None or (member.told_ms is None and member.gone_ms is None)


def _is_classic(facts: ConsumerFacts, member_id: str, classic_ids: Container[str]) -> bool:
    member = facts.members.get(member_id)
    if member is None or member.is_classic is None:
        return member_id in classic_ids
    return member.is_classic
