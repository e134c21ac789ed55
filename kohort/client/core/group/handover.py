"""Partitions on their way from one cooperative member to another (KIP-429), watched by the leader.

A partition that moves is given to no one in the round that decides so. Its owner learns from its
share that it has to give it up, does so and joins again; that round hands the partition out. But
the owner may have lost its membership in between. A static member (KIP-345) then comes back without
a round: it is given the share that was decided on, owns nothing by now that it could give up, and
so has no reason to join again. Nor has anybody else, and the partition stays unread until something
quite different makes the group rebalance. Only the leader knows of it, so the leader joins again
when an owner has had all the time that owners have.

How long that is: `max_poll_interval_ms`, which the coordinator knows as the rebalance timeout. An
owner gives up its partitions in a poll, and one that does not poll for so long stops being a member
in any case. Until then it may be at work on its last records, and a round begun for it would keep
the group waiting for the same poll. Afterwards a round costs nothing that would not be due anyway:
a member that has not asked for its share by then has been removed by the coordinator, in a round of
its own; one that has it, and still runs `on_revoked`, joins that round when it is through, in place
of one that it would have begun. The session timeout says nothing about any of this: heartbeats go
on while the application works.

A leader that is restarted within that time does not know what it held back.
"""

from collections.abc import Iterable, Mapping

from kohort.client.core.group.assignors.assignor import Assignment, GroupMember
from kohort.client.core.group.identity import NOBODY

UNLED = NOBODY.generation


def held_back(
    members: Iterable[GroupMember], assignment: Assignment, partition_counts: Mapping[str, int]
) -> int:
    """How many partitions exist, are held by members, and were assigned to none.

    Args:
        partition_counts: by topic; topics that do not exist are not in it.
    """
    claimed = {
        one
        for member in members
        for one in member.owned
        if 0 <= one.partition < partition_counts.get(one.topic, 0)
    }
    return len(claimed.difference(*assignment.values()))


class Handover:
    """What the leader of one generation has held back, and when it has to be handed over."""

    def __init__(self, patience_ms: int) -> None:
        """`patience_ms`: how long owners have for giving up what they have to."""
        self._patience_ms = patience_ms
        self._generation = UNLED
        """What is known is of this one."""
        self._count = 0
        self.due_ms: int | None = None
        """When the group has to be looked after; None if it has not."""

    def joined(self, generation: int, *, is_leader: bool) -> None:
        """The answer to a join. A static leader that was away may be in the same generation as
        before, whose assignment it made; every other generation starts over.
        """
        if generation != self._generation or not is_leader:
            self._generation = generation if is_leader else UNLED
            self._count = 0
            self.due_ms = None

    def assigned(self, count: int) -> None:
        """This leader's assignment holds so many back."""
        self._count = count

    def synced(self, now_ms: int) -> None:
        """The assignment is with the coordinator, so that members learn of it."""
        if self._count and self.due_ms is None:
            self.due_ms = now_ms + self._patience_ms

    def take_overdue(self, now_ms: int) -> int:
        """How many partitions were not handed over in time; 0 if all were. Once."""
        if self.due_ms is None or now_ms < self.due_ms:
            return 0
        count, self._count, self.due_ms = self._count, 0, None
        return count
