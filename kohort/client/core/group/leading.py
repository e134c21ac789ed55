"""What the leader of a group supervises: the partition counts on which its assignment is based, and
partitions that move from one cooperative member to another (KIP-429).

When a count changes, the assignment no longer covers the topic, and the leader has to rejoin.

A partition that moves is assigned to no member in the first round. The owner's new assignment lacks
the partition, so the owner gives it up and rejoins; that second round assigns it. But the owner may
lose its membership in between. A static member (KIP-345) then returns without a rebalance: it gets
the assignment of the first round, owns no partition to give up, and so has no reason to rejoin. Nor
has any other member, and the partition stays unread until something else makes the group rebalance.
Only the leader knows about the move, so the leader rejoins when the owner has had enough time.

That time is `max_poll_interval_ms`, which the coordinator knows as the rebalance timeout. An owner
gives up its partitions in a poll, and a member that does not poll for so long is removed in any
case. Until then it may be processing its last records, and starting a round would make the group
wait for its poll, too. After that time a round costs nothing extra: the coordinator has removed the
members that did not request their assignment, which takes a round in any case; a member that still
runs `on_revoked` joins the leader's round when it is done, instead of starting its own. The session
timeout is irrelevant here: heartbeats continue while the application works.

A leader that restarts within that time forgets the moves, and does not rejoin because of them.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kohort.client.core.group.assignors.assignor import Assignment, GroupMember
from kohort.client.core.group.identity import NO_MEMBER

CHANGES_MAX: Final = 10
"""Maximum number of changes that are listed in the reason for a rejoin."""


class WatchedTopics:
    """The topics whose partition counts the leader of one generation watches; none for other
    members.
    """

    def __init__(self) -> None:
        self._counts: Mapping[str, int] | None = None
        """Partition counts on which the assignment is based."""
        self._counts_meanwhile: Mapping[str, int] | None = None
        """The latest partition counts that arrived during the present rebalance."""

    @property
    def names(self) -> Collection[str]:
        """The topics whose metadata the leader needs."""
        return () if self._counts is None else self._counts.keys()

    def assigned(self, partition_counts: Mapping[str, int]) -> None:
        self._counts = dict(partition_counts)

    def clear(self) -> None:
        """Watch no topics: the assignment is no longer valid, or another member is the leader."""
        self._counts = self._counts_meanwhile = None

    def changed(self, partition_counts: Mapping[str, int]) -> str:
        """Describe how `partition_counts` (without topics that do not exist) differ from those on
        which the assignment is based; empty if they do not differ, or nothing is watched.
        """
        changes = [
            f"{topic}, {count} -> {partition_counts.get(topic, 0)}"
            for topic, count in sorted((self._counts or {}).items())
            if partition_counts.get(topic, 0) != count
        ]
        return "; ".join(changes[:CHANGES_MAX])

    def keep(self, partition_counts: Mapping[str, int]) -> None:
        """Keep partition counts that arrive during a rebalance until its end: the next metadata may
        come minutes later.
        """
        if self._counts is not None:
            self._counts_meanwhile = partition_counts

    def changed_meanwhile(self) -> str:
        """Like `changed`, for the partition counts last passed to `keep`; empty without any."""
        kept = self._counts_meanwhile
        return "" if kept is None else self.changed(kept)


UNLED = NO_MEMBER.generation


def held_back(
    members: Iterable[GroupMember], assignment: Assignment, partition_counts: Mapping[str, int]
) -> int:
    """Return how many existing partitions are owned by a member, but assigned to none.

    Args:
        partition_counts: by topic; topics that do not exist are missing.
    """
    claimed = {
        partition
        for member in members
        for partition in member.owned
        if 0 <= partition.partition < partition_counts.get(partition.topic, 0)
    }
    return len(claimed.difference(*assignment.values()))


class Handover:
    """The number of partitions that the leader of one generation has withheld, and the deadline for
    handing them over.
    """

    def __init__(self, timeout_ms: int) -> None:
        """`timeout_ms`: how long owners may take to give up partitions."""
        self._timeout_ms = timeout_ms
        self._generation = UNLED
        """The generation to which `_count` and `due_ms` belong."""
        self._count = 0
        self.due_ms: int | None = None
        """The deadline for the handover, after which the leader rejoins; None without one."""

    def joined(self, generation: int, *, is_leader: bool) -> None:
        """Process a JoinGroup response: reset the state unless this member already led this
        generation. A static leader may rejoin in the generation for which it made the assignment.
        """
        if generation != self._generation or not is_leader:
            self._generation = generation if is_leader else UNLED
            self._count = 0
            self.due_ms = None

    def assigned(self, count: int) -> None:
        """Record how many partitions this leader's assignment withholds."""
        self._count = count

    def synced(self, now_ms: int) -> None:
        """Start the time limit for the handover: the coordinator can now send the assignment."""
        if self._count and self.due_ms is None:
            self.due_ms = now_ms + self._timeout_ms

    def take_overdue(self, now_ms: int) -> int:
        """At the first call after the deadline, return how many partitions were not handed over;
        otherwise 0.
        """
        if self.due_ms is None or now_ms < self.due_ms:
            return 0
        count, self._count, self.due_ms = self._count, 0, None
        return count
