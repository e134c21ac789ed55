"""What polls do besides handing out records: findings of the heartbeat thread, steps of a
rebalance, callbacks, commits, positions.

None of them waits for a network: what is to be waited for goes on by itself and wakes the caller of
poll. While nothing is due, records are handed out at once.
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
from kohort.client.metadata import MetadataKeeper

EVERY_S: Final = 0.005
"""How often they are done while records are there to be handed out one by one."""


class PollDuties:
    """The duties of one consumer's polls, done by one task at a time."""

    def __init__(
        self,
        metadata: MetadataKeeper,
        lookups: PositionLookups,
        rebalance: Rebalance,
        *,
        commits: Commits | None,
        member: MembershipShell | None,
    ) -> None:
        """Without a group there are no `commits` and there is no `member`."""
        self._metadata = metadata
        self._lookups = lookups
        self._rebalance = rebalance
        self._commits = commits
        self._member = member
        self.done_s: float | None = None
        """When they were done last, on the loop's clock."""
        self.due_s = 0.0
        """Records may be handed out without them until then; 0: they are due now."""
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[Any] | None = None
        """Which does them now; callbacks that are no coroutines run in it."""

    async def run(self, deadline_s: float) -> None:
        """Do what is due. Callbacks of the application run here.

        Raises:
            ConsumerError, and what callbacks raise.
        """
        # As `alone` does, which would cost each poll a microsecond more.
        async with self._lock:
            self._task = asyncio.current_task()
            try:
                await self._run(deadline_s)
            except BaseException:
                # What was due still is, before more records are handed out.
                self.due_s = 0.0
                raise
            finally:
                self._task = None

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Within it no poll does them."""
        async with self._lock:
            self._task = asyncio.current_task()
            try:
                yield
            finally:
                self._task = None

    def check_caller(self) -> None:
        """Raise an IllegalStateError in a callback: a poll waits for it, and it for the poll."""
        caller = asyncio.current_task()
        callbacks = {self._task, self._rebalance.callbacks.task}
        if self._commits is not None:
            callbacks.add(self._commits.offsets.callbacks.task)
        if caller is not None and caller in callbacks:
            raise IllegalStateError("a callback of a consumer cannot poll it")

    def idle_s(self, now_s: float) -> float:
        """How long nothing is due, if nothing happens; can be infinite, or less than 0."""
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
        # First, so that whatever happens meanwhile can bring the next one forward.
        self.due_s = now_s + EVERY_S
        if self._member is not None:
            self._member.polled()
        if self._commits is not None and self._commits.offsets.callbacks.are_due:
            await self._commits.offsets.callbacks.tell()
        self._metadata.raise_error()
        if self._member is not None:
            await self._member.advance(deadline_s)
        if self._commits is not None:
            self._commits.polled(now_s)
        self._lookups.advance(now_s)
