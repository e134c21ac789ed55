"""Exactly once: the transactions of a run, one after another.

Each contains the records that handlers have sent, and the offsets after the records that they have
handled. If a handler fails, the transaction is aborted, and its records are handled in the next.

aiokafka's producer does not send the member's generation with the offsets (KIP-447), so the broker
would accept offsets from a member that the group has removed. Therefore a heartbeat follows the
offsets: while they are pending, no other member can fetch the committed offset; if the heartbeat
succeeds, this member was still the owner, so no other member had fetched that offset before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

from kohort.client.core.errors import CommitFailedError, ConfigError
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.work import Work
from kohort.client.processing.source import Positions, Source

logger = logging.getLogger(__name__)

INTERVAL_MS: Final = 100
"""How long a transaction lasts by default, as in Kafka Streams."""

CONFIRM_S: Final = 30.0
"""How long to wait for a heartbeat's answer, or for the end of a rebalance that delays it."""

LAST_ABORT_S: Final = 5.0
"""Time limit for aborting a transaction that is open when the task is cancelled."""

FIRST_BACKOFF_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
"""Maximum wait after a failed commit of a transaction; the wait doubles with each failure."""


def check_producer(producer: Any) -> None:  # noqa: ANN401 - aiokafka has no types.
    """Raise a ConfigError unless `producer` is aiokafka's, is transactional and was started."""
    names = ("begin_transaction", "send_offsets_to_transaction", "commit_transaction")
    if not all(callable(getattr(producer, name, None)) for name in names):
        raise ConfigError(
            "producer must be an AIOKafkaProducer with a transactional_id, which the"
            f" application starts and stops, not {producer!r}"
        )
    # These are private attributes of aiokafka: if a release lacks them, skip the check.
    manager = getattr(producer, "_txn_manager", producer)
    if getattr(manager, "transactional_id", manager) is None:
        raise ConfigError("producer has no transactional_id, which its transactions need")
    sender = getattr(producer, "_sender", producer)
    if getattr(sender, "sender_task", sender) is None or getattr(producer, "_closed", False):
        # Transactions of a producer that was not started would wait for ever.
        raise ConfigError("producer is not running: start() it before run(), and stop() it after")


class Transactions:
    """Begins and ends the transactions of one run, in a task of its own."""

    def __init__(
        self,
        producer: Any,  # noqa: ANN401 - aiokafka has no types.
        work: Work,
        source: Source,
        *,
        group_id: str,
        interval_ms: int | None,
        clock: Callable[[], float],
        employ: Callable[[], None],
    ) -> None:
        """`producer` is aiokafka's, started with a transactional_id; `employ` starts handlers for
        records that are ready.
        """
        self._producer = producer
        self._work = work
        self._source = source
        self._group_id = group_id
        self._interval_s = (INTERVAL_MS if interval_ms is None else interval_ms) / 1000
        self._clock = clock
        self._employ = employ
        self._changed = asyncio.Event()
        self._is_paused = False
        self._is_ending = False
        self._must_abort = False
        self._redo_at_s = 0.0
        self._backoff_s = FIRST_BACKOFF_S
        self.is_open = False
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        """Per partition, the latest offset that a transaction has committed."""
        self._size: float = float("inf")
        """Maximum records of the next transaction; halved after an abort, because a large
        transaction with many failing records would never commit."""
        self._task: asyncio.Task[None] | None = None
        work.start_limit = 0

    # Called by the runner.

    def start(self, on_error: Callable[[BaseException], None]) -> None:
        """Start the task. `on_error` is called with the producer's exception if a transaction
        cannot begin, or can be neither committed nor aborted.
        """

        def on_done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                on_error(error)

        self._task = asyncio.create_task(self._run(), name="transactions")
        self._task.add_done_callback(on_done)

    async def stop(self, timeout_s: float) -> None:
        """End the current transaction, or abort it if that takes too long; then end the task."""
        if self._task is None:
            return
        self.end()
        if not await self.wait_closed(timeout_s):
            logger.warning("a transaction did not end in time; its records will be read again")
        self._task.cancel()
        await asyncio.wait([self._task])

    def note(self) -> None:
        """Reconsider whether to begin or end a transaction: records were added, or workers have
        finished.
        """
        self._changed.set()

    def failed(self, redo_at_ms: int = 0) -> None:
        """Abort the transaction: a handler has failed, or its record cannot be committed."""
        self._redo_at_s = max(self._redo_at_s, redo_at_ms / 1000)
        if self.is_open:
            self._must_abort = True
            self._work.hold(self._work.partitions)
        self._changed.set()

    def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Abort the transaction: other members may own these partitions."""
        for partition in partitions:
            self.committed.pop(partition, None)
        self.failed()

    def end(self) -> None:
        """Begin no transaction after the current one."""
        self._is_ending = True
        self._changed.set()

    async def pause(self, drain_s: float, grace_s: float, cut: Callable[[], object]) -> None:
        """End the current transaction, and begin no other until `resume`. If the end takes longer
        than `drain_s`, `cut` cancels the running handlers, and the transaction is aborted.
        """
        self._is_paused = True
        self._changed.set()
        if not await self.wait_closed(drain_s):
            cut()
            self.failed()
            if not await self.wait_closed(grace_s):
                logger.warning("a transaction did not end in time")

    def resume(self) -> None:
        self._is_paused = False
        self._changed.set()

    async def wait_closed(self, timeout_s: float) -> bool:
        """Wait for the end of the transaction; return whether it has ended."""
        await self._wait(lambda: not self.is_open, self._clock() + timeout_s)
        return not self.is_open

    # The task.

    async def _run(self) -> None:
        while True:
            await self._wait(lambda: self._may_begin and self._work.has_records)
            await self._wait(lambda: self._is_ending, self._redo_at_s)
            if self._may_begin:
                await self._transact()

    @property
    def _may_begin(self) -> bool:
        return not self._is_ending and not self._is_paused

    async def _transact(self) -> None:
        work = self._work
        await self._producer.begin_transaction()
        if not self._may_begin:
            await self._producer.abort_transaction()
            return
        self.is_open, self._must_abort = True, False
        try:
            work.start_limit = self._size
            work.resume(self._now_ms())
            self._employ()
            await self._wait(self._is_full, self._clock() + self._interval_s)
            if self._must_abort:
                work.hold(work.partitions)
            work.close(self._now_ms())
            self._employ()
            await self._wait(lambda: not work.is_busy(work.partitions))
            work.start_limit = 0
            if self._must_abort:
                await self._abort()
            else:
                await self._commit()
        except asyncio.CancelledError:
            # Abort, because an open transaction would delay read_committed consumers of the output.
            with suppress(Exception):
                async with asyncio.timeout(LAST_ABORT_S):
                    await self._producer.abort_transaction()
            raise
        finally:
            work.start_limit = 0
            self.is_open = False
            self._changed.set()
            self._source.wake()

    def _is_full(self) -> bool:
        work = self._work
        if self._must_abort or not self._may_begin or work.started_count >= work.start_limit:
            return True
        # The transaction's records fill the limits and all are done: only its end makes room.
        return not work.has_space and not work.ready_count and not work.begun_count

    async def _commit(self) -> None:
        work = self._work
        offsets = work.uncommitted(self._source.positions)
        try:
            if offsets:
                await self._send_offsets(offsets)
                if not await self._source.confirm(CONFIRM_S) or self._must_abort:
                    raise CommitFailedError("the group may have removed this member")
            await self._producer.commit_transaction()
        except Exception as error:  # noqa: BLE001 - the producer's.
            logger.warning("a transaction could not be committed and is repeated: %r", error)
            self._redo_at_s = self._clock() + self._backoff_s
            self._backoff_s = min(self._backoff_s * 2, BACKOFF_MAX_S)
            await self._abort(error)
        else:
            self._backoff_s = FIRST_BACKOFF_S
            self._size *= 2
            self.committed.update(offsets)
            work.committed(offsets)
            work.settle()

    async def _send_offsets(self, offsets: Positions) -> None:
        from aiokafka import TopicPartition as Place  # noqa: PLC0415 - optional, slow to import.

        wanted = {Place(*partition): at.offset for partition, at in offsets.items()}
        await self._producer.send_offsets_to_transaction(wanted, self._group_id)

    async def _abort(self, cause: Exception | None = None) -> None:
        self._size = max(1, self._work.started_count // 2)
        try:
            await self._producer.abort_transaction()
        except Exception as error:
            # The outcome is unknown until a new producer with this transactional id resolves it.
            raise cause or error from error
        self._work.undo()

    async def _wait(self, holds: Callable[[], object], until_s: float | None = None) -> None:
        left_s = None if until_s is None else until_s - self._clock()
        try:
            async with asyncio.timeout(left_s):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
