"""The interface between a run and the consumer that it reads from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeAlias

from kohort.client.core.fetch.buffers import Records
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition

Positions: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitDone: TypeAlias = Callable[[BaseException | None], None]


class Source(Protocol):
    """Reads records and commits offsets. Implemented in `kohort.client.processing.run_controller`,
    and for tests of handlers in `kohort.testing.handling`.
    """

    @property
    def assigned(self) -> Collection[TopicPartition]:
        """The assigned partitions."""

    @property
    def positions(self) -> Positions:
        """For each partition that has a position, the offset after the last record taken."""

    @property
    def is_lost(self) -> bool:
        """Whether all partitions are lost because polls were too far apart, even if no poll has
        reported it yet.
        """

    @property
    def can_commit(self) -> bool:
        """Whether the consumer has a group to commit to."""

    @property
    def delay_max_s(self) -> float:
        """How long handlers and commits together may delay a rebalance; each gets half of it."""

    async def poll(
        self,
        timeout_s: float,
        take: Callable[[], Any],
        only: frozenset[TopicPartition] | None,
    ) -> object:
        """Poll the consumer until `take` returns a true result, and return that result. Polling
        keeps the consumer in its group.

        `take` is called whenever something may have changed, and after `wake`. `only`: the
        partitions from which `take` reads; None: all.
        """

    def take(self, count: int, only: frozenset[TopicPartition] | None) -> Records:
        """Return fetched records, in order within each partition, with keys and values as bytes."""

    def wake(self) -> None:
        """Make a waiting `poll` call `take`."""

    async def commit(self, offsets: Positions, timeout_s: float) -> None:
        """Commit these offsets. Raises a ConsumerError."""

    def commit_soon(self, offsets: Positions, on_done: CommitDone) -> None:
        """Start a commit without waiting for it; commits are made in the order of the calls."""

    async def confirm(self, timeout_s: float) -> bool:
        """Send a heartbeat; return whether it succeeded in time. If so, this member owned all
        partitions that were neither revoked nor lost. True without a group.
        """

    def skip(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading from this offset."""

    def go_back(self, offsets: Positions) -> None:
        """Continue reading from these offsets, and in partitions without such an offset from the
        committed offset.
        """
