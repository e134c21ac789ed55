"""Rebalances of consumer groups: what became of each member after a target was computed, and the
part of the record that follows from it.

Nobody stops as a whole, and there is no barrier: each member learns of the target with its next
heartbeat, gives up what is taken from it, and gets the rest when it is free.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from kohort.groups.events import MemberReconciled, MemberRef, TargetAssigned

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
    assigned_count: int = 0


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
        member.assigned_count = event.assigned_count
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
