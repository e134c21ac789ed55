"""What a run needs of the consumer that it reads from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeAlias

from kohort.client.core.fetch.buffers import Records
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition

Positions: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitDone: TypeAlias = Callable[[BaseException | None], None]


class Source(Protocol):
    """Reads, and commits. `kohort.client.processing.engine_source` is the real one; that of the
    tests under virtual time is `tests.unit.client.processing.played`.
    """

    @property
    def assigned(self) -> Collection[TopicPartition]:
        """The partitions that are read."""

    @property
    def positions(self) -> Positions:
        """Behind what was taken, of each partition that has a position."""

    @property
    def can_commit(self) -> bool:
        """Whether there is a group."""

    @property
    def patience_s(self) -> float:
        """How long a rebalance may be held up by handlers and commits, half of it each."""

    async def poll(
        self,
        timeout_s: float,
        take: Callable[[], Any],
        only: frozenset[TopicPartition] | None,
    ) -> object:
        """Have the group's steps done, and return what `take` returns as soon as that is true.

        `take` is called whenever something may have changed, and at `wake`. `only`: the partitions
        that it takes from; None: all.
        """

    def take(self, count: int, only: frozenset[TopicPartition] | None) -> Records:
        """Records that are here, in order within each partition; their keys and values bytes."""

    def wake(self) -> None:
        """Have `take` called."""

    async def commit(self, offsets: Positions, timeout_s: float) -> None:
        """Store them. Raises a ConsumerError."""

    def commit_soon(self, offsets: Positions, on_done: CommitDone) -> None:
        """Store them without being waited for, in the order of the calls."""

    def go_back(self, offsets: Positions) -> None:
        """Read on from there. Partitions that are read and not among these are read on from what
        the group has committed.
        """
