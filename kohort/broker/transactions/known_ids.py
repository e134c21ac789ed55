"""Index of the transactional ids (all, those with an open transaction, and those that are idle),
and the removal of expired or idle ids by writing their tombstones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kohort.broker.core.transaction.records import NEVER_MS
from kohort.broker.core.transaction.requests import TransactionConfig
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.transactions.host import TransactionHost


class KnownIds:
    """Index of the ids by state. `note_state` must be called after each change of an id."""

    def __init__(self) -> None:
        self._ids: dict[str, TransactionalId] = {}
        self._open: dict[str, TransactionalId] = {}
        """Ids with an open transaction, in the order in which their transactions began."""
        self._idle: dict[str, None] = {}
        """Idle ids, the longest idle first; some may have a tombstone being written."""

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, name: str) -> TransactionalId | None:
        return self._ids.get(name)

    def add(self, txn: TransactionalId) -> None:
        self._ids[txn.transactional_id] = txn

    def remove(self, name: str) -> None:
        """Drop an id, which must have no transaction, after its tombstone became durable."""
        self._ids.pop(name, None)
        self._idle.pop(name, None)

    def note_state(self, txn: TransactionalId) -> None:
        """Update the index for an id whose record became durable, or could not be written."""
        name = txn.transactional_id
        self._idle.pop(name, None)
        if txn.is_idle:
            self._idle[name] = None
        if txn.is_open:
            self._open.setdefault(name, txn)
        else:
            self._open.pop(name, None)

    def sort_open(self) -> None:
        """Sort open ids by the start of their transactions: they were loaded in another order."""
        self._open = dict(sorted(self._open.items(), key=lambda item: _start_ms(item[1])))

    def names(self) -> list[str]:
        """Return a copy of all ids, for callers that yield to the event loop while iterating."""
        return list(self._ids)

    def all(self) -> Collection[TransactionalId]:
        """Return a view of all ids; do not use it across an await."""
        return self._ids.values()

    def open(self) -> Collection[TransactionalId]:
        """Return a view of the ids with an incomplete transaction; not to be kept across awaits."""
        return self._open.values()

    def idle_names(self) -> list[str]:
        """Return the names of ids without a transaction, the longest idle first."""
        return list(self._idle)

    @property
    def idle_count(self) -> int:
        return len(self._idle)

    def longest_idle(self) -> TransactionalId | None:
        """Return the removable id that has been idle for the longest time, or None."""
        idle: Iterable[TransactionalId] = (self._ids[name] for name in self._idle)
        return next((txn for txn in idle if txn.is_idle), None)


def _start_ms(txn: TransactionalId) -> int:
    return NEVER_MS if txn.record is None else txn.record.start_ms


logger = logging.getLogger(__name__)


class Forgetting:
    """Removes expired ids periodically, and idle ones when a new id needs room."""

    def __init__(
        self,
        host: TransactionHost,
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
        """While there are too many ids, remove the one that has been idle for the longest time.

        Returns:
            NONE if a new id may be added; COORDINATOR_NOT_AVAILABLE if no id is idle, or while the
            tombstone of the removed id is being written.
        """
        host = self._host
        while len(host.ids) >= self._ids_max:
            oldest = host.ids.longest_idle()
            if oldest is None:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            host.counts["evicted"] += 1
            host.forget(oldest)
            if oldest.record is not None:
                # The tombstone of the removed id is being written; the client must retry.
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
                logger.exception("Internal error in the expiry of transactional id %r", name)
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
