"""Runs handlers: reads while the limits allow, passes records to workers, drains, commits.

One task reads and keeps polling, so that the membership is kept however long handlers take.
`concurrency` workers run the handlers; `kohort.client.core.work` decides which record may start and
which offsets are done. The consumer calls `revoke` and `lose` for partitions that the group takes
away.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

from kohort.client.core.errors import ConsumerClosedError, RecordError
from kohort.client.core.lanes import Item
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.work import Work
from kohort.client.core.work_limits import BatchLimits
from kohort.client.processing.attempts import Attempts, Outcomes
from kohort.client.processing.block_watch import BlockWatch
from kohort.client.processing.commits import SOON_S, RunCommits
from kohort.client.processing.dead_letters import DeadLetterSink
from kohort.client.processing.figures import Counts, RunFigures
from kohort.client.processing.options import RunOptions
from kohort.client.processing.source import Source
from kohort.client.processing.transactions import Transactions
from kohort.client.processing.unreadable import Unreadable
from kohort.client.processing.worker_timers import RetryTimer, StartSlice

logger = logging.getLogger(__name__)

POLL_S: Final = 1.0
"""Maximum wait of a poll."""

CUT_GRACE_S: Final = 1.0
"""Time for a cancelled handler to clean up."""

LAST_COMMIT_S: Final = 5.0
"""Time limit of the last commit, if the run was cancelled or failed."""

Partitions: TypeAlias = Collection[TopicPartition]


class Runner:
    def __init__(
        self,
        source: Source,
        options: RunOptions,
        attempts: Attempts,
        dead_letters: DeadLetterSink | None,
        counts: Counts,
        *,
        group_id: str | None,
        commit_interval_ms: int,
        batches: BatchLimits | None = None,
        producer: Any = None,  # noqa: ANN401 - aiokafka has no types.
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`clock` returns seconds, comparable with the loop's clock."""
        self._source = source
        self._clock = clock
        self._options = options
        self._attempts = attempts
        self._dead_letters = dead_letters
        self._work = Work(
            options.limits,
            by_key=options.ordering == "key",
            batches=batches,
            is_transactional=producer is not None,
        )
        self._transactions: Transactions | None = None
        if producer is not None:
            self._transactions = Transactions(
                producer,
                self._work,
                source,
                group_id=group_id or "",
                interval_ms=options.commit_interval_ms,
                clock=clock,
                employ=self._employ,
            )
        redo = None if self._transactions is None else self._transactions.failed
        self._outcomes = Outcomes(self._work, options, counts, chance, group_id, redo)
        self._unreadable = Unreadable(options.on_unreadable, self._work, source, counts)
        self._counts = counts
        self._commits = RunCommits(
            self._work,
            source,
            interval_ms=commit_interval_ms if producer is None else float("inf"),
            clock=clock,
            random=chance,
        )
        self._workers: dict[asyncio.Task[None], Item | None] = {}
        """The record that each worker is handling."""
        self._cancelled: set[asyncio.Task[None]] = set()
        """Workers that were cancelled and have not ended yet."""
        self._idle: list[asyncio.Future[None]] = []
        self._start_slice = StartSlice(clock, self._check_lost)
        self._retry_timer = RetryTimer(clock, self._on_retry_due)
        self._only: frozenset[TopicPartition] | None = None
        """The partitions to which the current poll is limited; None if unlimited or woken."""
        self._block_watch = BlockWatch(self._handled)
        self._progress = asyncio.Event()
        """Set when a worker has finished with a record."""
        self._is_ending = False
        self._is_finishing = False
        """Whether workers are being cancelled."""
        self._is_watched = producer is not None
        """Whether workers report each processed record, for a transaction or a drain."""
        self._drain_by_s: float | None = None
        self._failure: BaseException | None = None
        self._task: tuple[asyncio.Task[Any], int]
        """The task of `run`, and its count of cancellation requests at the start."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes when `run` has returned."""

    async def run(self) -> None:
        """Handle records until `end` is called, the consumer is closed, or something fails.

        Raises:
            HandlerError: a record could not be handled and may not be skipped.
            whatever a poll raises.
        """
        task = asyncio.current_task()
        assert task is not None
        self._task = task, task.cancelling()
        self._block_watch.start()
        try:
            if self._dead_letters is not None:
                await self._dead_letters.start()
            if self._transactions is not None:
                self._transactions.start(self._fail)
            await self._read()
        except ConsumerClosedError:
            logger.warning("the consumer was closed before its handlers had finished")
        except Exception as error:  # noqa: BLE001 - raised after the running handlers.
            self._fail(error)
            await self._drain_unpolled()
        finally:
            self._is_ending = self._is_watched = True
            self._block_watch.stop()
            try:
                await self._finish()
            finally:
                self._let_go()
        if self._failure is not None:
            raise self._failure

    def end(self, timeout_s: float | None = None) -> None:
        """Take no more records; `run` returns when the taken ones are drained (see `Work.drain`),
        or after `timeout_s`.
        """
        if timeout_s is None:
            timeout_s = self._options.drain_timeout_ms / 1000
        by_s = self._clock() + timeout_s
        self._drain_by_s = by_s if self._drain_by_s is None else min(by_s, self._drain_by_s)
        self._is_ending = self._is_watched = True
        self._begin_drain(self._work.partitions, self._drain_by_s)
        if self._transactions is not None:
            self._transactions.end()
        self._source.wake()

    def has_task(self, task: asyncio.Task[object] | None) -> bool:
        """Whether this task runs handlers."""
        return task in self._workers

    async def _read(self) -> None:
        while not self._is_over:
            gone = self._work.partitions - set(self._source.assigned)
            if gone:
                self.lose(gone)
            only = self._only = self._wanted()
            timeout_s = min(POLL_S, self._commits.due_in_s, self._drain_left_s)
            try:
                await self._source.poll(timeout_s, partial(self._take, only), only)
            except RecordError as error:
                self._unreadable.pass_over(error, self._now_ms())
                self._employ()
            self._commits.begin_if_due()

    @property
    def _is_over(self) -> bool:
        if not self._is_ending:
            return False
        if self._drain_left_s <= 0:
            return True
        is_open = self._transactions is not None and self._transactions.is_open
        return not is_open and not self._work.is_busy(self._work.partitions)

    @property
    def _drain_left_s(self) -> float:
        if self._drain_by_s is None:
            return float("inf")
        left_s = self._drain_by_s - self._clock()
        return left_s if left_s > SOON_S else 0.0

    def _wanted(self) -> frozenset[TopicPartition] | None:
        """The partitions to take records from; None: all."""
        if self._is_ending or not self._work.room():
            self._work.hurry()
            return frozenset()
        work = self._work
        full = {tp for tp in work.partitions if not work.has_room(tp)}
        return frozenset(self._source.assigned) - full if full else None

    def _take(self, only: frozenset[TopicPartition] | None) -> bool:
        """Take as many records as the limits allow; return whether the current poll should end."""
        self._only = only
        if self._wanted() != only or self._is_over:
            return True
        if only is not None and not only:
            return False
        records, now_ms = self._source.take(self._work.room(), only), self._now_ms()
        for partition, its in records.items():
            self._work.feed(partition, its, now_ms)
        self._employ()
        return bool(records)

    def _employ(self) -> None:
        """Start a worker for each ready record up to the limit; set a timer for retries."""
        if self._transactions is not None:
            self._transactions.note()
        wanted = self._work.ready_count
        if wanted and self._clock() >= self._start_slice.ends_s:
            self._start_slice.renew_soon()
        while wanted > 0 and self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(None)
                wanted -= 1
        for _ in range(min(wanted, self._options.concurrency - len(self._workers))):
            task = asyncio.create_task(self._work_on(), name="handle records")
            self._workers[task] = None
            task.add_done_callback(self._left)
        self._retry_timer.set(self._work.due_ms())

    def _on_retry_due(self) -> None:
        self._work.wake_rested(self._now_ms())
        self._employ()

    def _left(self, task: asyncio.Task[None]) -> None:
        self._workers.pop(task, None)
        self._cancelled.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        elif not self._is_finishing:
            self._employ()

    async def _work_on(self) -> None:  # noqa: C901, PLR0912 - calls cost more than handlers.
        me = asyncio.current_task()
        assert me is not None
        clock, start_slice, begin = self._clock, self._start_slice, self._attempts.begin
        item: Item | None = None
        now_s = clock()
        while True:
            if item is None:
                while now_s >= start_slice.ends_s:
                    start_slice.renew_soon()
                    await asyncio.sleep(0)
                    now_s = clock()
                item = self._work.next(int(now_s * 1000))
                if item is None:
                    waiting = asyncio.get_running_loop().create_future()
                    self._idle.append(waiting)
                    await waiting
                    now_s = clock()
                    continue
                self._workers[me] = item
            error: Exception | None = None
            following: Item | None = None
            try:
                try:
                    answer = begin(item) if item.failure is None else self._begin(item)
                    if answer is not None:
                        await answer
                except asyncio.CancelledError as cancelled:
                    # If the handler's task was not cancelled, something that it awaited was.
                    error = RuntimeError(f"the handler was cancelled from within: {cancelled!r}")
                except Exception as raised:  # noqa: BLE001 - the handler's, or the dead-letter sink's.
                    error = raised
                except BaseException:
                    self._work.abandon(item)
                    raise
                now_s = clock()
                goes_on = now_s < start_slice.ends_s
                if self._cancelled or me.cancelling():
                    self._end_if_cut(item, me, error)
                    goes_on = False
                if error is None:
                    following = self._outcomes.succeeded(item, int(now_s * 1000), goes_on=goes_on)
                else:
                    self._failed(item, error)
            finally:
                self._workers[me] = item = following
                if self._is_watched or self._only is not None:
                    self._gave_back()
            if not goes_on and me.cancelling():
                return  # The next handler needs a task whose cancellation count is 0.

    def _check_lost(self) -> None:
        if self._source.is_lost:
            # A handler blocked the loop for too long, and no poll has reported the loss yet.
            self.lose(list(self._work.partitions))

    def _begin(self, item: Item) -> Awaitable[object] | None:
        """Retry a failed record or write its dead letter; return what to await, None if done."""
        if item.failure is not None and item.failure.is_final:
            assert self._dead_letters is not None
            return self._dead_letters.write(self._outcomes.letter(item))
        return self._attempts.begin(item)

    def _failed(self, item: Item, error: Exception) -> None:
        failure = self._outcomes.failed(item, error, self._now_ms())
        if failure is not None:
            self._fail(failure)
            if self._transactions is not None:
                self._transactions.failed()
        self._retry_timer.set(self._work.due_ms())

    def _end_if_cut(self, item: Item, worker: asyncio.Task[None], error: Exception | None) -> None:
        """End the worker if the run has cancelled it.

        Do this even if the handler suppressed the cancellation and returned, or raised another
        exception: its work may be incomplete.
        """
        if self._is_cut(worker):
            logger.debug("%s-%d@%d was cancelled: %r", *item.partition, item.offset, error)
            self._counts.dropped += 1
            self._work.abandon(item)
            if self._transactions is not None:
                self._transactions.failed()
            raise asyncio.CancelledError

    def _is_cut(self, worker: asyncio.Task[None]) -> bool:
        """Whether the run has cancelled a worker, or run and worker were both cancelled, as
        `asyncio.run` cancels all tasks at its end.

        `worker.cancelling()` alone does not show that: code in the handler may have cancelled its
        own task for a timeout without calling `uncancel`, as aiohttp did.
        """
        if worker in self._cancelled:
            return True
        task, count_before = self._task
        return worker.cancelling() > 0 and task.cancelling() > count_before

    def _gave_back(self) -> None:
        self._progress.set()
        if self._transactions is not None:
            self._transactions.note()
        if self._is_ending:
            if self._is_over:
                self._source.wake()
        elif self._only is not None and self._work.has_space and self._wanted() != self._only:
            self._only = None  # One wake-up suffices; one per record would cost more than handlers.
            self._source.wake()

    def _fail(self, error: BaseException) -> None:
        """End the run, which then raises the first error."""
        if self._failure is None:
            self._failure = error
        self.end()

    # Rebalances.

    async def revoke(self, partitions: Partitions) -> None:
        """Drain these partitions for a limited time, commit, then forget them."""
        drain_max_s = min(self._options.drain_timeout_ms / 1000, self._source.delay_max_s / 2)
        timeout_s = min(drain_max_s, self._drain_left_s)
        try:
            if self._transactions is not None:
                cut = partial(self._cut, self._work.partitions)
                await self._transactions.pause(timeout_s, self._source.delay_max_s / 2, cut)
                return
            self._begin_drain(partitions, self._clock() + timeout_s)
            await self._drain(partitions, timeout_s)
            positions = {tp: at for tp, at in self._source.positions.items() if tp in partitions}
            wanted = self._work.uncommitted(positions)
            await self._commits.commit_now(wanted, self._source.delay_max_s / 2)
        finally:
            self.lose(partitions)
            if self._transactions is not None:
                self._transactions.resume()

    def lose(self, partitions: Partitions) -> None:
        """Forget these partitions, which other members may own, and cancel their handlers."""
        self._cut(partitions)
        self._work.drop(partitions)
        if self._transactions is not None:
            self._transactions.lose(partitions)
        self._source.wake()

    def take_over(self, partitions: Partitions) -> None:
        self._work.take_over(partitions)

    def _begin_drain(self, partitions: Partitions, by_s: float) -> None:
        self._work.drain(partitions, int(by_s * 1000))
        self._employ()

    async def _drain(self, partitions: Partitions, timeout_s: float) -> None:
        """Wait for the handlers of these partitions; cancel those that take too long."""
        if await self._wait_idle(partitions, timeout_s):
            return
        self._work.hold(partitions)
        for item in self._cut(partitions):
            logger.warning(
                "the handler of %s-%d@%d did not return in time and is cancelled; the record will"
                " be read again",
                *item.partition,
                item.offset,
            )
        if not await self._wait_idle(partitions, CUT_GRACE_S):
            logger.warning("a handler is still running although it was cancelled")

    async def _wait_idle(self, partitions: Partitions, timeout_s: float) -> bool:
        self._is_watched = True
        try:
            async with asyncio.timeout(timeout_s):
                while self._work.is_busy(partitions):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        finally:
            self._is_watched = self._is_ending or self._transactions is not None
        return True

    def _cut(self, partitions: Partitions) -> Iterable[Item]:
        """Cancel the handlers of these partitions; return the records that they were handling."""
        cancelled = []
        for task, item in list(self._workers.items()):
            if item is not None and item.partition in partitions and not item.is_void:
                self._cancel(task)
                cancelled.append(item)
        return cancelled

    def _cancel(self, worker: asyncio.Task[None]) -> None:
        self._cancelled.add(worker)
        worker.cancel()

    async def _drain_unpolled(self) -> None:
        """Wait for running handlers without polling, because a poll has just raised an error."""
        partitions = list(self._work.partitions)
        await self._wait_idle(partitions, min(self._drain_left_s, self._source.delay_max_s / 2))

    async def _finish(self) -> None:
        """Cancel the remaining handlers, and commit the done offsets."""
        work = self._work
        self._is_finishing = True
        self._retry_timer.cancel()
        work.hold(work.partitions)
        await self._drain(list(work.partitions), 0.0)
        workers = list(self._workers)
        for task in workers:
            self._cancel(task)
        if workers:
            await asyncio.wait(workers, timeout=CUT_GRACE_S)
        if self._transactions is None:
            wanted = work.uncommitted(self._source.positions)
            await self._commits.commit_now(wanted, LAST_COMMIT_S)
        else:
            await self._transactions.stop(LAST_COMMIT_S)
        if self._dead_letters is not None:
            await self._dead_letters.stop()

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """For each partition, the offset up to which all records are done."""
        if self._transactions is not None:
            return dict(self._transactions.committed)
        return self._work.committable(self._source.positions)

    def _let_go(self) -> None:
        # Reading is ahead of handling; later reads and commits must start from the done offsets.
        # With transactions they start from the group's committed offsets, because the outcome of
        # the last transaction may be unknown here.
        self._source.go_back({} if self._transactions is not None else self.committable())
        self._work.drop(self._work.partitions)  # No worker handles their records any longer.
        if not self.over.done():
            self.over.set_result(None)

    def figures(self) -> RunFigures:
        return self._outcomes.figures(
            self._now_ms(), is_running=not self.over.done(), failure=self._failure
        )

    def _handled(self) -> object:
        """Return a value that changes whenever a handler starts or ends."""
        counts = self._counts
        return counts.handled, counts.failed, counts.dropped, [*self._workers.values()]

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
