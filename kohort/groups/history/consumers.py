"""Rebalances of consumer groups: what became of each member after a target was computed, and the
part of the record that follows from it.

Nobody stops as a whole, and there is no barrier: each member learns of the target with its next
heartbeat, gives up what is taken from it, and gets the rest when it is free.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from kohort.groups.events import MemberReconciled, MemberRef, TargetAssigned
from kohort.groups.history.limits import cut_id, cut_ids
from kohort.groups.history.model import MemberPartitions, WaitedFor

CONSUMER_MODE: Final = "consumer"
"""`mode` of the members, beside eager and cooperative."""

_STABLE: Final = "STABLE"

_Partition = tuple[str, int]


@dataclass(slots=True, eq=False)
class Progress:
    """One member. Times are monotonic milliseconds; None for what has not happened."""

    member: MemberRef
    told_ms: int | None = None
    """When it learned of the target: what to give up or, if nothing, the new epoch."""
    revoked_ms: int | None = None
    """When it no longer owned what was taken from it."""
    completed_ms: int | None = None
    """When it had its whole target."""
    revoking: tuple[_Partition, ...] = ()
    gained: dict[_Partition, int] = field(default_factory=dict)
    """When it got each partition."""


@dataclass(slots=True, eq=False)
class ConsumerFacts:
    """The facts that only rebalances of consumer groups have."""

    assigned_ms: int | None = None
    """When the target was durable."""
    assignor: str | None = None
    epoch: int | None = None
    members: dict[str, Progress] = field(default_factory=dict)
    given_up: dict[_Partition, int] = field(default_factory=dict)
    """When each partition lost its owner."""

    def assign(self, event: TargetAssigned, now_ms: int) -> None:
        self.assigned_ms = now_ms
        self.assignor = event.assignor
        self.epoch = event.epoch

    def move(self, event: MemberReconciled, now_ms: int) -> None:
        """Note the progress of a member."""
        member_id = event.member.member_id
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Progress(event.member)
        is_at_target = self.epoch is not None and event.epoch >= self.epoch
        if member.told_ms is None and (event.revoking or is_at_target):
            member.told_ms = now_ms
        if event.revoking:
            member.revoking = event.revoking
        elif member.revoking and member.revoked_ms is None:
            member.revoked_ms = now_ms
            self.given_up.update(dict.fromkeys(member.revoking, now_ms))
        member.gained.update(dict.fromkeys(event.gained, now_ms))
        if is_at_target and event.state == _STABLE:
            member.completed_ms = now_ms

    def stopped_ms(self, member_id: str, removed_ms: int | None) -> int:
        """Return the longest time that a partition which the member gained had no owner.

        Args:
            member_id: the member.
            removed_ms: when the first member was removed, whose partitions nobody gave up.
        """
        member = self.members.get(member_id)
        if member is None:
            return 0
        stops = [
            at_ms - since_ms
            for partition, at_ms in member.gained.items()
            if (since_ms := self.given_up.get(partition, removed_ms)) is not None
        ]
        return max(stops, default=0)

    def partitions(self, member_id: str) -> MemberPartitions:
        """Return what a member gave up and gained."""
        member = self.members.get(member_id)
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

    def copy(self) -> "ConsumerFacts":
        """Copy the present facts, for a reader that takes several steps."""
        return replace(
            self,
            members={
                member_id: replace(member, gained=member.gained.copy())
                for member_id, member in self.members.items()
            },
            given_up=self.given_up.copy(),
        )


def waited_for(
    facts: ConsumerFacts, present: Iterator[str], began_ms: int, end_ms: int, *, is_over: bool
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
