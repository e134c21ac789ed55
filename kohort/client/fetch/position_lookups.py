"""Gives every assigned partition a position, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kohort.client.clock import monotonic_ms
from kohort.client.core.errors import OperationTimedOutError
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.fetcher import CommittedLookup, Fetcher


class PositionLookups:
    """The lookups of one consumer: one at a time, repeated when positions have changed."""

    def __init__(
        self,
        fetcher: Fetcher,
        positions: Positions,
        committed: CommittedLookup | None,
        *,
        retry_backoff_ms: int,
        on_done: Callable[[], None],
    ) -> None:
        """`committed` is None without a group. `on_done` is called when a lookup has ended."""
        self._fetcher = fetcher
        self._positions = positions
        self._committed = committed
        self._retry_backoff_s = retry_backoff_ms / 1000
        self._on_done = on_done
        self._task: asyncio.Task[None] | None = None
        self._seen_version = -1
        """The version of the positions at the last lookup; -1: look up again."""
        self.rests_until_s = 0.0
        """The monotonic time before which no lookup starts, because the last one failed."""

    def advance(self, now_s: float) -> None:
        """Start a lookup of missing positions, unless one is in progress.

        Raises:
            Exception: whatever `Fetcher.update_positions` raised in the previous lookup.
        """
        if self._task is not None:
            if not self._task.done():
                return
            self._raise_error(now_s)
        if self._seen_version == self._positions.version or now_s < self.rests_until_s:
            return
        self._seen_version = self._positions.version
        placeless = [*self._positions.missing_position(), *self._positions.awaiting_reset()]
        self._fetcher.state.failures.placeless(placeless, monotonic_ms())
        if not placeless:
            return
        self._task = asyncio.create_task(
            self._fetcher.update_positions(self._committed), name="look up positions"
        )
        self._task.add_done_callback(lambda _: self._on_done())

    async def find(self, partition: TopicPartition, timeout_s: float) -> int:
        """Wait for a position, without performing rebalance steps, so that callbacks may call this.

        Raises:
            IllegalStateError: the partition is not, or no longer, assigned.
            OperationTimedOutError: not found within `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while (position := self._positions.position(partition)) is None:
                    await self._fetcher.update_positions(self._committed)
                    await self._fetcher.wait_positions([partition], timeout_s)
        except TimeoutError:
            raise OperationTimedOutError(
                f"the position in {partition.topic}-{partition.partition} could not be determined"
                f" within {timeout_s:g} s; is its leader up?"
            ) from None
        return position

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _raise_error(self, now_s: float) -> None:
        task, self._task = self._task, None
        if task is None or task.cancelled() or (error := task.exception()) is None:
            return
        self.rests_until_s = now_s + self._retry_backoff_s
        self._seen_version = -1
        raise error
