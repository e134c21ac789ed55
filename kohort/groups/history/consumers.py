"""Rebalances of consumer groups: the progress of each member towards its target assignment.

No member stops completely, and there is no barrier: each member learns of its target with its next
heartbeat, revokes partitions, and gets its new ones when they are free.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from kohort.groups.events import MemberReconciled, MemberRef, TargetAssigned

CONSUMER_MODE: Final = "consumer"
"""`mode` of members of consumer groups; the other modes are eager and cooperative."""

_STABLE: Final = "STABLE"
_UNREVOKED: Final = "UNREVOKED_PARTITIONS"

Partition = tuple[str, int]


@dataclass(slots=True, eq=False)
class Progress:
    """The progress of one member. Times are monotonic milliseconds; None before the event."""

    member: MemberRef
    is_classic: bool | None = None
    """Whether the member uses the classic protocol; None if removed before it made progress."""
    epoch: int | None = None
    told_ms: int | None = None
    """When the member learned of the target: partitions to revoke or, if none, the new epoch."""
    revoked_ms: int | None = None
    """When the member had revoked all partitions that it had to revoke."""
    reached_ms: int | None = None
    """When the member reached the epoch of the target assignment."""
    completed_ms: int | None = None
    """When the member had all partitions of its target assignment."""
    pending: tuple[Partition, ...] = ()
    """The partitions of existing topics that the member still has to revoke."""
    is_revoking: bool = False
    """Whether the member still has partitions to revoke, including those of deleted topics."""
    gone_ms: int | None = None
    """When the member was removed."""
    taken: dict[Partition, None] = field(default_factory=dict)
    """The partitions that the member had to revoke, including those not revoked yet."""
    gained: list[Partition] = field(default_factory=list)
    freed_ms: int | None = None
    """When the last of the partitions that the member gained was released by its former owner."""
    stopped_ms: int = 0
    """The longest time for which a partition gained from another member had no owner."""
    assigned_count: int = 0


@dataclass(slots=True, eq=False)
class ConsumerFacts:
    assigned_ms: int | None = None
    """When the target assignment was computed."""
    assigned_by: str | None = None
    durable_ms: int | None = None
    """When the target assignment was stored."""
    assignor: str | None = None
    epoch: int | None = None
    members: dict[str, Progress] = field(default_factory=dict)
    unowned: dict[Partition, int] = field(default_factory=dict)
    """Partitions without an owner, and since when."""
    gained_at: dict[Partition, int] = field(default_factory=dict)
    """By partition: when a member gained it."""
    moved_count: int = 0
    """Number of partitions that have changed owners."""

    def assign(self, event: TargetAssigned, now_ms: int, elapsed_ms: int) -> None:
        """Record that a target assignment, computed `elapsed_ms` ago, has been stored."""
        self.assigned_ms = now_ms - elapsed_ms
        self.assigned_by = event.assigned_by
        self.durable_ms = now_ms
        self.assignor = event.assignor
        self.epoch = event.epoch

    def move(self, event: MemberReconciled, now_ms: int) -> None:
        """Record the partitions that a member has gained, released, and still has to revoke."""
        member_id = event.member.member_id
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Progress(event.member)
        member.is_classic = event.is_classic
        member.epoch = event.epoch
        member.assigned_count = event.assigned_count
        is_at_target = self.epoch is not None and event.epoch >= self.epoch
        is_revoking = event.state == _UNREVOKED
        if member.told_ms is None and (is_revoking or is_at_target):
            member.told_ms = now_ms
        self.release(set(member.pending).difference(event.revoking), now_ms)
        if member.is_revoking and not is_revoking:
            member.revoked_ms = now_ms
        member.pending, member.is_revoking = event.revoking, is_revoking
        member.taken.update(dict.fromkeys(event.revoking))
        for partition in event.gained:
            member.gained.append(partition)
            self.gained_at[partition] = now_ms
            since_ms = self.unowned.pop(partition, None)
            if since_ms is not None:
                self.moved_count += 1
                member.freed_ms = max(member.freed_ms or since_ms, since_ms)
                member.stopped_ms = max(member.stopped_ms, now_ms - since_ms)
        if is_at_target and member.reached_ms is None:
            member.reached_ms = now_ms
        if is_at_target and event.state == _STABLE:
            member.completed_ms = now_ms

    def release(self, partitions: Iterable[Partition], now_ms: int) -> None:
        """Record that partitions have lost their owner."""
        for partition in partitions:
            self.unowned[partition] = now_ms

    def remove(self, member: MemberRef, held: Collection[Partition], now_ms: int) -> None:
        """Record that a member was removed, and that its partitions are free."""
        progress = self.members.setdefault(member.member_id, Progress(member))
        progress.taken.update(dict.fromkeys(held))
        self.release((*progress.pending, *held), now_ms)
        progress.pending, progress.assigned_count = (), 0
        progress.gone_ms = now_ms

    def replace(self, member: MemberRef, now_ms: int) -> None:
        """Record that a new process replaced a static member: the partitions that the old one
        still had to revoke have no owner now.
        """
        progress = self.members.setdefault(member.member_id, Progress(member))
        self.release(progress.pending, now_ms)
        if progress.is_revoking:
            progress.is_revoking, progress.revoked_ms = False, now_ms
        progress.pending, progress.assigned_count = (), 0

    def next(self, now_ms: int) -> "ConsumerFacts":
        """Return the initial facts of a rebalance that supersedes this one: partitions without an
        owner, and members that are still revoking partitions.
        """
        return ConsumerFacts(
            members={
                member_id: Progress(
                    member.member,
                    member.is_classic,
                    member.epoch,
                    told_ms=now_ms,
                    pending=member.pending,
                    is_revoking=True,
                    taken=dict.fromkeys(member.pending),
                    assigned_count=member.assigned_count,
                )
                for member_id, member in self.members.items()
                if member.is_revoking and member.gone_ms is None
            },
            unowned=self.unowned.copy(),
        )

    def copy(self) -> "ConsumerFacts":
        """Copy the current facts, for code that reads them in several event loop iterations."""
        return replace(
            self,
            members={
                member_id: replace(member, taken=member.taken.copy(), gained=member.gained.copy())
                for member_id, member in self.members.items()
            },
            unowned=self.unowned.copy(),
            gained_at=self.gained_at.copy(),
        )
