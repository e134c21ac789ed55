"""The view of groups that pages, console and metrics read.

The broker implements this view for its own groups, ``kohort watch`` for the groups of another
cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from kohort.broker.coordinator.host import GroupObserver
    from kohort.broker.history.rings import StoredRecord
    from kohort.broker.share.delivery import ShareDelivery
    from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
    from kohort.groups.requests import CommittedOffset, Now
    from kohort.groups.steps import Steps
    from kohort.protocol.errors import ErrorCode


class OffsetsSeen(Protocol):
    @property
    def count(self) -> int:
        """Number of committed offsets."""
        ...

    def topics(self) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """All committed offsets, by topic and partition; to be copied before other code runs."""
        ...


class GroupSeen(Protocol):
    """One group; see :class:`kohort.groups.group.Group`."""

    @property
    def group_id(self) -> str: ...
    @property
    def offsets(self) -> OffsetsSeen: ...
    def describe(self) -> GroupDescription: ...
    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]: ...
    def describe_waiting(self) -> WaitingFor | None: ...
    def subscribed_topics(self) -> frozenset[str] | None: ...
    def gauges(self) -> Mapping[str, int]: ...


class GroupsSeen(Protocol):
    """All groups of a broker, or of the cluster that ``kohort watch`` follows."""

    def now(self) -> Now:
        """Return the present time, on the clocks that the groups' descriptions use."""
        ...

    def monotonic_ms(self) -> int: ...

    def group_ids(self) -> list[str]:
        """Return a copy of all ids, for callers that take several event loop iterations."""
        ...

    def groups(self) -> Iterable[GroupSeen]:
        """Return all groups, for reading; not to be kept across an await."""
        ...

    def group(self, group_id: str) -> GroupSeen | None: ...

    def living_group(self, group_id: str) -> GroupSeen | None:
        """Return a group; None if it does not exist, or was removed and is about to be dropped."""
        ...

    def read_error(self, group_id: str) -> ErrorCode:
        """Return the error for reads of this group; NONE if it can be read or does not exist."""
        ...

    def add_observer(self, observer: GroupObserver) -> None: ...
    def remove_observer(self, observer: GroupObserver) -> None: ...


class RebalancesSeen(Protocol):
    """The rebalances of all groups; see :class:`kohort.broker.history.history.RebalanceHistory`."""

    def totals(self, group_id: str) -> tuple[int, int]:
        """Return the number of rebalances and the number of avoided rebalances, including those
        whose records were dropped.
        """
        ...

    def stored_records(self, group_id: str) -> list[StoredRecord]:
        """Return a group's complete records, oldest first; decompress them one at a time."""
        ...

    def open_text_steps(self, group_id: str) -> Steps[bytes] | None:
        """Return the record of the rebalance in progress as JSON, in steps; None if the group has
        none.
        """
        ...

    def stats(self) -> Mapping[str, int]: ...


class Readable(NamedTuple):
    """A partition's readable offsets: from the log start offset up to the high watermark."""

    start: int
    """The log start offset."""
    end: int

    def lag(self, committed: int) -> int | None:
        """Return the number of records that a group with this committed offset has not read; None
        if the offset is negative, which clients treat as no commit.

        Records below the log start do not count: they are deleted, so no consumer can read them.
        The lag is 0 if the offset is beyond the end, because the topic was created again or the
        client committed an offset that does not exist yet.
        """
        return None if committed < 0 else max(0, self.end - max(committed, self.start))


ReadableOf: TypeAlias = Callable[[str, int], Readable | None]
"""Returns the readable offsets of a partition, by topic and number; None if it does not exist."""


SharesSeen: TypeAlias = "Callable[[], ShareDelivery | None]"
"""Returns the object that delivers records to share groups; None before the first share group."""


def no_shares() -> None:
    """A `SharesSeen` for processes that deliver no records to share groups."""


class Position(NamedTuple):
    topic: str
    partition: int
    committed: CommittedOffset
    readable: Readable | None
    """Offsets that can be read; None if the partition does not exist."""

    @property
    def end(self) -> int | None:
        """The high watermark; None if the partition does not exist."""
        return None if self.readable is None else self.readable.end

    @property
    def lag(self) -> int | None:
        """Lag in records; see `Readable.lag`."""
        return None if self.readable is None else self.readable.lag(self.committed.offset)


def positions(
    group: GroupSeen, readable: ReadableOf, only: str | None = None
) -> Iterator[Position]:
    """Yield the committed positions of a group; with `only`, those in this topic. The offsets of a
    partition are read when its position is yielded.
    """
    for topic, partitions in list(group.offsets.topics().items()):
        if only not in {None, topic}:
            continue
        for index, committed in list(partitions.items()):
            yield Position(topic, index, committed, readable(topic, index))
