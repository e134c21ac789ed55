"""Removes transactional ids, expired or idle, by writing their tombstones."""

import asyncio
import logging
from typing import Protocol

from kohort.broker.core.transaction.requests import TransactionConfig
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.transactions.events import EventCounts
from kohort.broker.transactions.known_ids import KnownIds
from kohort.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class ForgettingHost(Protocol):
    @property
    def ids(self) -> KnownIds: ...

    @property
    def counts(self) -> EventCounts: ...

    def forget(self, txn: TransactionalId) -> None: ...

    def is_broken(self, transactional_id: str) -> bool:
        """Return whether an internal error has disabled the id."""
        ...


class Forgetting:
    """Removes expired ids periodically, and idle ones when a new id needs room."""

    def __init__(
        self,
        host: ForgettingHost,
        clock: Clock,
        rules: TransactionConfig,
        *,
        ids_max: int,
        check_ms: int,
        background_tasks: BackgroundTasks,
    ) -> None:
        """`check_ms` is the interval between checks for expired ids."""
        self._host = host
        self._clock = clock
        self._rules = rules
        self._ids_max = ids_max
        self._check_ms = check_ms
        self._background_tasks = background_tasks
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sweeper = self._background_tasks.start(
            "expiry of transactional ids", self._sweep_regularly
        )

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
            self._sweeper = None

    def make_room(self) -> ErrorCode:
        """Remove the ids that have been idle longest while there are too many.

        Returns:
            COORDINATOR_NOT_AVAILABLE if none is idle, or while the tombstone is being written;
            NONE if a new id may be added.
        """
        host = self._host
        while len(host.ids) >= self._ids_max:
            oldest = host.ids.longest_idle()
            if oldest is None:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            host.counts["evicted"] += 1
            host.forget(oldest)
            if oldest.record is not None:
                # Its tombstone is being written; there is room when the client retries.
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    async def sweep(self) -> None:
        """Remove expired ids, a few at a time."""
        host = self._host
        time_slice = Slice(self._clock)
        for name in host.ids.idle_names():
            try:
                self._forget_if_expired(name)
            except Exception:
                logger.exception("expiry of transactional id %r", name)
            await time_slice.pause()

    def _forget_if_expired(self, name: str) -> None:
        host = self._host
        txn = host.ids.get(name)
        if (
            txn is not None
            and not host.is_broken(name)
            and txn.is_expired(self._rules, self._clock.wall_ms())
        ):
            host.counts["expired"] += 1
            host.forget(txn)

    async def _sweep_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._check_ms / 1_000)
            await self.sweep()
