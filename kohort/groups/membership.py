"""The part of a group that depends on its kind: the members, and the rules of their protocol.

:class:`~kohort.groups.group.Group` has the id, the offsets and the outbox, and one membership or
none. A membership stages records and emits effects through the outbox of its group. Requests that
only one kind of group understands (JoinGroup, SyncGroup) are methods of that kind's own class and
not part of this interface.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
from kohort.groups.effects import TimerKey
from kohort.groups.kinds import GroupKind
from kohort.groups.records import DurableRecord, Generation
from kohort.groups.requests import CommitRequest, Now
from kohort.protocol.errors import ErrorCode


class OffsetRetention(NamedTuple):
    """Determines which committed offsets may expire, and since when they are unused (KIP-211)."""

    kept_topics: frozenset[str] | None = frozenset()
    """Topics whose offsets never expire, because members read them; None for all topics."""
    unused_since_ms: int = -1
    """Wall-clock time from which all offsets count as unused; -1 if each counts from its commit."""


class Membership(Protocol):
    """The members of one group. No method awaits. Methods that change the members are called one at
    a time; reads, such as properties, at any time.
    """

    @property
    def kind(self) -> GroupKind: ...

    @property
    def is_empty(self) -> bool:
        """Whether there are no members, and none is joining, so that the group may be deleted."""
        ...

    @property
    def is_unused(self) -> bool:
        """Whether the membership `is_empty`, and has no pending members (KIP-394)."""
        ...

    # Offsets.

    def validate_commit(
        self, request: CommitRequest, now: Now, *, transactional: bool
    ) -> ErrorCode:
        """Return whether the sender of an OffsetCommit or TxnOffsetCommit may commit: NONE, or the
        error. May restart the session of the member that commits.
        """
        ...

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return whether the sender of an OffsetFetch may read offsets: NONE, or the error."""
        ...

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members read; None if unknown, to be treated as all topics."""
        ...

    def offset_retention(self) -> OffsetRetention:
        """Return which offsets may expire now."""
        ...

    # Deleted topics.

    @property
    def has_lost_topics(self) -> bool:
        """Whether the membership stores state, other than offsets, of topics that do not exist."""
        ...

    def forget_topics(self, now: Now) -> None:
        """Drop the state, other than offsets, of topics that do not exist."""
        ...

    # Records.

    def restore(
        self, records: Sequence[DurableRecord], now: Now, earlier: Iterable[Generation]
    ) -> None:
        """Restore the members from the last record of each key, in the order of the log; volatile
        state is lost. Call `start` next. `earlier`: previous generations, for GroupRestored.
        """
        ...

    def start(self, now: Now) -> None:
        """Start the timers of a membership that was restored, or that has just replaced another."""
        ...

    def tombstones(self) -> tuple[DurableRecord, ...]:
        """Return the tombstones of all records of the membership in the log."""
        ...

    # Time, and the end.

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        """Process expired timers. Keys whose timers were set again or cancelled are ignored."""
        ...

    def end(self, error: ErrorCode, now: Now) -> None:
        """Process the end of the group: waiting requests are answered with `error`."""
        ...

    def close(self) -> None:
        """Cancel all timers and release the members' memory; the membership has ended."""
        ...

    # Reports.

    def gauges(self) -> Mapping[str, int]:
        """Return the numbers that the metrics sum over all groups, by name."""
        ...

    def describe(self) -> GroupDescription:
        """Return the group without its members; takes the same time for any number of them."""
        ...

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]: ...

    def describe_waiting(self) -> WaitingFor | None:
        """Return what a running rebalance waits for; None if no rebalance is running."""
        ...
