"""Hosts all transactional ids of this broker: loading, writing, markers, timeouts and expiry.

Guarantees: all ids are loaded, and all transactions in Prepare* completed, before the first request
is served. A request's changes are durable before its response. If the markers are few and need
not wait for a disk, EndTxn is answered when the Prepare* record is durable, and the markers are
written before any later request is executed.

The rules are in :mod:`kohort.broker.core.transaction`; the host executes their effects. There is no
lock and no queue: the rules reject a request that arrives while a record of its transactional id is
being written.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Never, assert_never

from kohort.broker.core.coordinator_partitions import ID_CHARACTERS_MAX, partition_of
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.transaction.effects import (
    Append,
    Began,
    Effect,
    Ended,
    Mark,
    Reply,
    Stuck,
    Superseded,
)
from kohort.broker.core.transaction.reconcile import OpenInPartition
from kohort.broker.core.transaction.requests import TopicPartition, TransactionConfig
from kohort.broker.core.transaction.rules import late_before_ms
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.runtime.slices import RoundRobin, Slice
from kohort.broker.topics.internal_log import InternalLog
from kohort.broker.transactions.events import EventCounts
from kohort.broker.transactions.known_ids import Forgetting, KnownIds
from kohort.broker.transactions.log import encode_as_batch, load_ids
from kohort.broker.transactions.markers import Marking, PartitionMarkers
from kohort.broker.transactions.reconciling import Reconciler
from kohort.broker.transactions.timers import TimedStep, TransactionTimers
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

PARTITIONS_LOGGED_MAX: Final = 10
"""Maximum partitions named in one log line."""

CLOSE_WAIT_S: Final = 5.0
"""How long a shutdown waits for appends in progress."""


class TransactionsConfig(NamedTuple):
    """Settings for all transactional ids; `rules`: the settings that `core.transaction` uses."""

    rules: TransactionConfig = TransactionConfig()
    ids_max: int = 100_000
    """Maximum number of transactional ids: above it, a new one replaces the longest idle one."""
    timeout_check_ms: int = 10_000
    """Maximum delay until an overdue transaction is aborted, even if the wall clock has jumped."""
    expiry_check_ms: int = 3_600_000
    """The interval between checks for expired transactional ids."""


def _nothing() -> tuple[Never, ...]:
    return ()


class TransactionHost:
    """Holds the transactional ids and executes the effects that they request."""

    def __init__(
        self,
        config: TransactionsConfig,
        *,
        log: InternalLog,
        markers: PartitionMarkers,
        purgatory: Purgatory,
        clock: Clock,
        new_producer_id: Callable[[], int],
        background_tasks: BackgroundTasks | None = None,
    ) -> None:
        """`new_producer_id` returns an id that it never returned before, or raises KafkaError."""
        self.config = config
        self._log = log
        self._clock = clock
        self._failures = PeerLog(logger, clock)
        """Logs failed appends: on a full disk, every request of every client causes one."""
        self._new_producer_id = new_producer_id
        self.ids = KnownIds()
        """The known ids, read-only for other objects; only this host changes them."""
        self._unreadable: frozenset[int] = frozenset()
        """Partitions of __transaction_state that could not be read: their ids are unavailable."""
        self._broken: set[str] = set()
        """Transactional ids that are unavailable until the next start, after an internal error."""
        self._stuck: set[str] = set()
        """Ids whose transaction in Prepare* cannot be completed yet; logged when added."""
        self._unanswered: dict[Deferred[Any], TransactionalId] = {}
        """By the pending response to a request (its ticket), the request's transactional id."""
        self._settling: dict[str, list[Deferred[None]]] = {}
        """By transactional id, the waiters for the end of its operation in progress."""
        self._slices = RoundRobin(clock)
        """Schedules ids with many markers to write, or with expired timers, round robin."""
        self._timers = TransactionTimers(
            purgatory,
            clock,
            self._slices,
            self._step_by_name,
            timeout_check_ms=config.timeout_check_ms,
        )
        self.marking = Marking(markers, log, clock, self._slices, self._run_step)
        self._tasks: set[asyncio.Task[None]] = set()
        self._forgetting = Forgetting(
            self,
            clock,
            config.rules,
            ids_max=config.ids_max,
            check_ms=config.expiry_check_ms,
            background_tasks=background_tasks or BackgroundTasks(clock),
        )
        self._is_closed = False
        self.counts = EventCounts()
        self.load_times_ms: Sequence[int] = ()
        """Time that the start took to read each partition of __transaction_state with records."""

    # Start and stop.

    async def start(
        self,
        find_open: Callable[[], Iterable[OpenInPartition]] = _nothing,
        find_epochs: Callable[[], Iterable[tuple[int, int]]] = _nothing,
    ) -> None:
        """Load all ids, reconcile partitions and coordinator, and complete transactions in
        Prepare*.

        Args:
            find_open: after an unclean stop, returns every transaction that is open in a partition;
                called again at the end, to check that the coordinator knows them all.
            find_epochs: after an unclean stop, returns (producer id, epoch) from the partitions.
        """
        loaded = await load_ids(self._log, self._clock)
        self._unreadable = loaded.unreadable_partitions
        self.load_times_ms = loaded.load_times_ms
        time_slice = Slice(self._clock)
        for transactional_id, record in loaded.records.items():
            txn = self._make(transactional_id)
            txn.apply(record)
            self.ids.note_state(txn)
            await time_slice.pause()
        logger.info("Loaded %d transactional ids", len(self.ids))
        self.ids.sort_open()
        reconciler = Reconciler(self, self.marking.writer)
        await reconciler.repair(find_open())
        await self._complete_all()
        await reconciler.fence(find_epochs())
        reconciler.check(find_open())
        for txn in list(self.ids.all()):
            self._timers.watch(txn)
        self.begin()

    def begin(self) -> None:
        """Start the expiry of idle ids; to be called instead of `start` if there is nothing to
        load.
        """
        self._forgetting.start()

    async def close(self) -> None:
        """Answer pending requests with NOT_COORDINATOR, after waiting for appends in progress."""
        self.marking.finish()
        self._is_closed = True
        await self._forgetting.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_WAIT_S)
        self._timers.cancel_all()
        self._slices.clear()
        unanswered, self._unanswered = self._unanswered, {}
        for ticket in unanswered:
            ticket.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        settling, self._settling = self._settling, {}
        for waiters in settling.values():
            for waiter in waiters:
                waiter.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Queries.

    def error(self, transactional_id: str) -> ErrorCode:
        """Return the reason why this id is unavailable; NONE if it is available or unknown."""
        if self._is_closed:
            return ErrorCode.NOT_COORDINATOR
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        is_unreadable = (
            self._unreadable and self._partition_of(transactional_id) in self._unreadable
        )
        if is_unreadable or transactional_id in self._broken:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def transactional_id(self, transactional_id: str) -> TransactionalId | None:
        """Find a transactional id, for reading; None if it is unknown or not durable yet."""
        txn = self.ids.get(transactional_id)
        return None if txn is None or txn.record is None else txn

    @property
    def stuck_count(self) -> int:
        """Number of transactions in Prepare* that cannot be completed yet."""
        return len(self._stuck)

    @property
    def late_before_ms(self) -> int:
        """An open transaction is late if its last batch is older than this wall-clock time."""
        return late_before_ms(self.config.rules, self._clock.wall_ms())

    def is_stuck(self, transactional_id: str) -> bool:
        """Whether `stuck_count` includes this id's transaction."""
        return transactional_id in self._stuck

    def stats(self) -> dict[str, int]:
        return {
            "ids": len(self.ids),
            "idle": self.ids.idle_count,
            "open": len(self.ids.open()),
            "unanswered": len(self._unanswered),
            "settling": len(self._settling),
            "retries": self._timers.retry_count,
            "slices": self._slices.waiting_count,
            "answered": self.marking.answered_count,
            "tasks": len(self._tasks),
            "stuck": len(self._stuck),
            "broken": len(self._broken),
            **self.counts,
        }

    # For requests.

    def find(self, transactional_id: str) -> TransactionalId | ErrorCode:
        error = self.error(transactional_id)
        if error:
            return error
        txn = self.ids.get(transactional_id)
        if txn is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        self.marking.finish_one(txn)
        return txn

    def find_or_make(self, transactional_id: str) -> TransactionalId | ErrorCode:
        """Return the transactional id, created if necessary, or the error code to respond with."""
        txn = self.ids.get(transactional_id)
        error = self.error(transactional_id)
        if not error and txn is None:
            if len(transactional_id) > ID_CHARACTERS_MAX:
                return ErrorCode.INVALID_REQUEST
            error = self._forgetting.make_room()
        if error:
            return error
        if txn is None:
            return self._make(transactional_id)
        self.marking.finish_one(txn)
        return txn

    def step(
        self, txn: TransactionalId, ticket: Deferred[Any], step: Callable[[int], None]
    ) -> None:
        """Execute a request: call `step` with the wall-clock time. `ticket` gets the response."""
        self._unanswered[ticket] = txn
        self._run_step(txn, lambda: step(self._clock.wall_ms()))

    def settled(self, txn: TransactionalId) -> Deferred[None]:
        """Return a `Deferred` that completes when the operation in progress of `txn` has ended."""
        waiter: Deferred[None] = Deferred()
        self._settling.setdefault(txn.transactional_id, []).append(waiter)
        return waiter

    # For `Forgetting` and `Reconciler`.

    def forget(self, txn: TransactionalId) -> None:
        txn.forget()
        self._carry_out_effects(txn)

    def is_broken(self, transactional_id: str) -> bool:
        """Whether the id had an internal error: it must not change before the next start."""
        return transactional_id in self._broken

    def add_lost(self, txn: TransactionalId, partition: TopicPartition) -> None:
        txn.add_lost(partition, self._clock.wall_ms())
        self._carry_out_effects(txn)

    def fence(self, txn: TransactionalId, epoch: int) -> None:
        txn.fence(epoch, self._clock.wall_ms())
        self._carry_out_effects(txn)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The coordinator epoch in the markers of this id."""
        return self._log.leader_epoch(self._partition_of(transactional_id))

    def prepare_log(self) -> Awaitable[None] | None:
        return self._log.prepare()

    async def wait_settled(self, txn: TransactionalId) -> None:
        while txn.is_busy:
            await self.settled(txn)

    # Ids.

    def _make(self, transactional_id: str) -> TransactionalId:
        txn = TransactionalId(
            transactional_id,
            self._new_producer_id,
            log_partition=self._partition_of(transactional_id),
        )
        self.ids.add(txn)
        return txn

    def _partition_of(self, transactional_id: str) -> int:
        return partition_of(transactional_id, self._log.partition_count)

    # Steps.

    def _run_step(self, txn: TransactionalId, step: Callable[[], None]) -> None:
        if txn.transactional_id in self._broken:
            return
        try:
            step()
        except Exception:
            logger.exception(
                "Internal error in a step of transactional id %r", txn.transactional_id
            )
            self._break(txn)
        else:
            self._carry_out_effects(txn)

    def _step_by_name(self, name: str, step: TimedStep) -> None:
        txn = self.ids.get(name)
        if txn is not None:
            self._run_step(txn, lambda: step(txn, self._clock.wall_ms()))

    def _carry_out_effects(self, txn: TransactionalId) -> None:
        """Execute the effects that an id requests, and further ones that these lead to: a completed
        append is followed by markers, and the last marker by the Complete* record.
        """
        try:
            while txn.has_effects:
                for effect in txn.take_effects():
                    self._carry_out(txn, effect)
        except Exception:
            logger.exception(
                "Internal error in a request of transactional id %r", txn.transactional_id
            )
            self._break(txn)
            return
        if self._stuck and txn.is_idle:
            self._stuck.discard(txn.transactional_id)
        if txn.is_gone:
            self.ids.remove(txn.transactional_id)
            self._timers.cancel(txn.transactional_id)
            self.counts.forget(txn.transactional_id)
        elif not self.marking.is_answered(txn):
            self._timers.watch(txn)
        self._log_settled(txn)

    def _carry_out(self, txn: TransactionalId, effect: Effect) -> None:
        match effect:
            case Reply(ticket, body):
                assert isinstance(ticket, Deferred)
                if self._unanswered.pop(ticket, None) is not None:
                    ticket.set_result(body)
            case Append():
                self._append(txn, effect)
            case Mark():
                self.marking.begin(txn, effect)
            case Stuck(partitions):
                self._log_stuck(txn, partitions)
                self._timers.retry_later(txn.transactional_id)
            case Began() | Ended() | Superseded():
                self.counts.note(txn.transactional_id, effect, self._clock.wall_ms())
            case _:
                assert_never(effect)

    def _log_stuck(self, txn: TransactionalId, partitions: Sequence[TopicPartition]) -> None:
        name = txn.transactional_id
        if name not in self._stuck:
            self._stuck.add(name)
            logger.warning(
                "The transaction of %r has an outcome, but cannot be completed yet: %s",
                name,
                ", ".join(f"{topic}-{index}" for topic, index in partitions[:PARTITIONS_LOGGED_MAX])
                or "its own log cannot be written",
            )

    def _break(self, txn: TransactionalId) -> None:
        """Make the transactional id unavailable until the next start, after an internal error."""
        name = txn.transactional_id
        self._broken.add(name)
        self.marking.forget(txn)
        self._timers.cancel(name)
        for ticket in [ticket for ticket, of in self._unanswered.items() if of is txn]:
            del self._unanswered[ticket]
            if not ticket.is_done:
                ticket.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        for waiter in self._settling.pop(name, ()):
            waiter.set_result(None)

    def _log_settled(self, txn: TransactionalId) -> None:
        if self._settling and not txn.is_busy:
            for waiter in self._settling.pop(txn.transactional_id, ()):
                waiter.set_result(None)

    # Records.

    def _append(self, txn: TransactionalId, append: Append) -> None:
        wall_ms = self._clock.wall_ms()
        try:
            batch = encode_as_batch(append.record, wall_ms)
            waiting = self._log.append(txn.log_partition, batch, wall_ms=wall_ms)
        except KafkaError as error:
            self._on_append_failed(txn, error)
            return
        if waiting is None:
            answers_first = self.marking.may_follow_answer(append.record)
            txn.on_appended(wall_ms, answers_first=answers_first)
            self.ids.note_state(txn)
            return
        txn.on_waiting()
        name = f"append for transactional id {txn.transactional_id}"
        task = asyncio.get_running_loop().create_task(self._wait_appended(txn, waiting), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait_appended(self, txn: TransactionalId, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except KafkaError as failure:
            error = failure
            self._run_step(txn, lambda: self._on_append_failed(txn, error))
        else:
            self._run_step(txn, lambda: self._on_waited(txn))

    def _on_waited(self, txn: TransactionalId) -> None:
        txn.on_appended(self._clock.wall_ms())
        self.ids.note_state(txn)

    def _on_append_failed(self, txn: TransactionalId, error: KafkaError) -> None:
        self.counts["append_failures"] += 1
        self._failures.note(
            "append", "An append for transactional id %s failed: %s", txn.transactional_id, error
        )
        txn.on_append_failed()
        self.ids.note_state(txn)
        if txn.deadline_ms is not None:
            self._timers.abort_later(txn)

    # At the start: all ids, one after another.

    async def _complete_all(self) -> None:
        started: list[TransactionalId] = []
        time_slice = Slice(self._clock)
        for txn in list(self.ids.all()):
            if txn.record is not None and txn.record.state.is_prepared:
                txn.complete(self._clock.wall_ms())
                self._carry_out_effects(txn)
                started.append(txn)
            await time_slice.pause()
        for txn in started:
            await self.wait_settled(txn)
        if started:
            logger.info("Completed %d transactions in PrepareCommit or PrepareAbort", len(started))
