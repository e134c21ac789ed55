"""Housekeeping of a poll: findings of the heartbeat thread, rebalance actions, callbacks, commits,
missing positions.

Nothing here waits for the network: such work runs in separate tasks, which wake the poll when they
are done. If nothing is due, a poll returns records immediately.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from kohort.client.core.errors import IllegalStateError
from kohort.client.fetch.position_lookups import PositionLookups
from kohort.client.group.commits import Commits
from kohort.client.group.member import MembershipShell
from kohort.client.group.rebalance import Rebalance
from kohort.client.net.metadata import MetadataKeeper

EVERY_S: Final = 0.005
"""Interval between runs of the housekeeping while records are returned one by one."""


class PollHousekeeping:
    """Runs the housekeeping of one consumer, in one task at a time."""

    def __init__(
        self,
        metadata: MetadataKeeper,
        lookups: PositionLookups,
        rebalance: Rebalance,
        *,
        commits: Commits | None,
        member: MembershipShell | None,
    ) -> None:
        """`commits` and `member` are None without a group."""
        self._metadata = metadata
        self._lookups = lookups
        self._rebalance = rebalance
        self._commits = commits
        self._member = member
        self.done_s: float | None = None
        """When housekeeping last ran, on the monotonic clock."""
        self.due_s = 0.0
        """The monotonic time until which polls return records without housekeeping; 0: run it
        now."""
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[Any] | None = None
        """The task that runs the housekeeping at present; plain-function callbacks run in that
        task."""

    async def run(self, deadline_s: float) -> None:
        """Run the housekeeping once, including application callbacks.

        Raises:
            ConsumerError: raised by `MembershipShell.advance` or `MetadataKeeper.raise_error`.
            Exception: whatever a callback raises.
        """
        # Repeats `alone`, whose context manager would cost each poll a microsecond.
        async with self._lock:
            self._task = asyncio.current_task()
            try:
                await self._run(deadline_s)
            except BaseException:
                # Before it returns records, the next poll runs the housekeeping again, to retry
                # what failed.
                self.due_s = 0.0
                raise
            finally:
                self._task = None

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """A context in which no poll runs the housekeeping."""
        async with self._lock:
            self._task = asyncio.current_task()
            try:
                yield
            finally:
                self._task = None

    def check_caller(self) -> None:
        """Raise IllegalStateError if called from a callback, which would wait for itself."""
        caller = asyncio.current_task()
        callbacks = {self._task, self._rebalance.callbacks.task}
        if self._commits is not None:
            callbacks.add(self._commits.offsets.callbacks.task)
        if caller is not None and caller in callbacks:
            raise IllegalStateError("a callback cannot poll its own consumer")

    def idle_s(self, now_s: float) -> float:
        """Seconds until something is due, if no event occurs first; may be infinite or negative."""
        until_s = float("inf")
        if self._member is not None and self._member.idle_until_ms is not None:
            until_s = self._member.idle_until_ms / 1000
        if self._commits is not None:
            until_s = min(until_s, self._commits.idle_until_s)
        if self._lookups.rests_until_s > now_s:
            until_s = min(until_s, self._lookups.rests_until_s)
        return until_s - now_s

    async def _run(self, deadline_s: float) -> None:
        now_s = time.monotonic()
        self.done_s = now_s
        # Set first, so that events during this run can schedule the next one earlier.
        self.due_s = now_s + EVERY_S
        if self._member is not None:
            self._member.polled()
        if self._commits is not None and self._commits.offsets.callbacks.are_due:
            await self._commits.offsets.callbacks.run_due()
        self._metadata.raise_error()
        if self._member is not None:
            await self._member.advance(deadline_s)
        if self._commits is not None:
            self._commits.polled(now_s)
        self._lookups.advance(now_s)
