"""`Consumer.run`, as a mixin of `Consumer`."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Generic

from kohort.client.config import ConsumerConfig
from kohort.client.constructor import K, V
from kohort.client.core.errors import IllegalStateError
from kohort.client.core.records import ConsumerRecord
from kohort.client.engine import Engine
from kohort.client.group.listener import Partitions, RebalanceListener
from kohort.client.processing.attempts import Attempts
from kohort.client.processing.dead_letters import DeadLetterWriter, sink_for
from kohort.client.processing.engine_source import EngineSource
from kohort.client.processing.figures import Counts, RunFigures
from kohort.client.processing.options import OnFailure, Ordering, RetryOn, RunOptions
from kohort.client.processing.runner import Runner

STOP_SHARE: Final = 0.6
"""The share of the timeout of `stop` that handlers get; the rest is for commits, callbacks and
leaving the group."""


class Runs(Generic[K, V]):
    """Runs handlers concurrently."""

    config: ConsumerConfig
    _engine: Engine | None
    _counts: Counts | None = None
    _last_run: Runner | None = None

    def _running(self) -> Engine:
        raise NotImplementedError

    async def run(
        self,
        handler: Callable[[ConsumerRecord[K, V]], Awaitable[object] | object],
        *,
        concurrency: int = 16,
        ordering: Ordering = "partition",
        retries: int | None = 3,
        retry_on: RetryOn = Exception,
        retry_backoff_ms: int = 500,
        retry_backoff_max_ms: int = 30_000,
        retry_jitter: float = 0.2,
        handler_timeout_ms: int | None = None,
        dead_letter: str | DeadLetterWriter | None = None,
        on_failure: OnFailure = "stop",
        commit_interval_ms: int | None = None,
        drain_timeout_ms: int = 30_000,
        in_flight_records_limit: int = 1_000,
        in_flight_bytes_limit: int = 16 << 20,
        uncommitted_records_limit: int = 10_000,
        stop_on: Collection[signal.Signals] = (),
    ) -> None:
        """Handle every record at least once, and commit what is handled, until `stop` or `end_run`.

        Afterwards the consumer's positions are behind the records that were handled without gaps,
        and it can be read further. Cancelling cancels the handlers, whose records are not
        committed.

        Args:
            handler: called with each record, usually a coroutine function. A plain function must be
                quick, because it blocks the event loop.
            concurrency: the largest number of handlers running at once.
            ordering: "partition": one record of a partition at a time; "key": one record of each
                key of a partition at a time, where records without a key count as having the same
                key. Keys are compared as bytes. A record that is retried keeps its place.
            retries: attempts after the first one; None: unlimited.
            retry_on: the exceptions that are retried: classes, or a function that decides.
            retry_backoff_ms: the wait before the second attempt; it doubles for each further
                attempt.
            retry_backoff_max_ms: the longest such wait.
            retry_jitter: the share by which waits vary at random; 0 for none.
            handler_timeout_ms: a handler that takes longer is cancelled, which counts as a
                TimeoutError.
            dead_letter: where a record goes whose attempts are used up, or that cannot be
                deserialised: a topic, which requires aiokafka (`kohort[dead-letters]`), or a
                coroutine function that returns when the `DeadLetter` is stored. Retried until it
                succeeds.
            on_failure: without `dead_letter`: "stop" raises a HandlerError once the running
                handlers have finished, "skip" logs the record and continues after it.
            commit_interval_ms: auto_commit_interval_ms by default. enable_auto_commit and other
                kinds of commits have no effect during a run; `commit()` commits what is handled.
            drain_timeout_ms: how long handlers have when their partitions are revoked, at most a
                quarter of max_poll_interval_ms, and at the end of the run. Handlers that take
                longer are cancelled, and their records are read again.
            in_flight_records_limit: the largest number of records held, waiting or in a handler.
            in_flight_bytes_limit: no more records are taken while those held exceed this many
                bytes.
            uncommitted_records_limit: per partition, records after the first that is not done;
                bounds how many may be handled twice.
            stop_on: signals that end the run, as `end_run` does; a second one has its usual effect.
                Use (signal.SIGTERM,) in a container.

        Raises:
            ConfigError: an option cannot be used.
            HandlerError: see `on_failure`.
            IllegalStateError: a run is in progress already, or there is nothing to read.
            Exception: whatever a poll raises.
        """
        options = RunOptions(
            concurrency=concurrency,
            ordering=ordering,
            retries=retries,
            retry_on=retry_on,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            retry_jitter=retry_jitter,
            handler_timeout_ms=handler_timeout_ms,
            dead_letter=dead_letter,
            on_failure=on_failure,
            commit_interval_ms=commit_interval_ms,
            drain_timeout_ms=drain_timeout_ms,
            in_flight_records_limit=in_flight_records_limit,
            in_flight_bytes_limit=in_flight_bytes_limit,
            uncommitted_records_limit=uncommitted_records_limit,
            stop_on=stop_on,
        )
        engine = self._running()
        if engine.runner is not None:
            raise IllegalStateError("run() is running already; one at a time")
        if self._counts is None:
            self._counts = Counts()
        runner = self._last_run = self._runner(engine, handler, options, self._counts)
        with engine.handed_to(runner, _RunNotifier(runner)), _ended_by(options.stop_on, runner):
            await runner.run()

    def end_run(self) -> None:
        """Make `run` return once the running handlers have finished. Handlers may call it, too."""
        engine = self._engine
        if engine is not None and engine.runner is not None:
            engine.runner.end()

    def _runner(
        self,
        engine: Engine,
        handler: Callable[[ConsumerRecord[K, V]], Awaitable[object] | object],
        options: RunOptions,
        counts: Counts,
    ) -> Runner:
        config = self.config
        interval_ms = options.commit_interval_ms
        return Runner(
            EngineSource(engine),
            options,
            Attempts(
                handler,
                read_key=config.key_deserializer,
                read_value=config.value_deserializer,
                timeout_ms=options.handler_timeout_ms,
            ),
            sink_for(options.dead_letter, config),
            counts,
            group_id=config.group_id,
            commit_interval_ms=(
                config.auto_commit_interval_ms if interval_ms is None else interval_ms
            ),
            # Looked up at call time, because tests on virtual time replace it.
            clock=time.monotonic,
        )

    async def _end_run(self, timeout_s: float) -> None:
        """Wait for a run to end, within its share of the timeout of `stop`."""
        runner = None if self._engine is None else self._engine.runner
        if runner is None:
            return
        if runner.has_task(asyncio.current_task()):
            raise IllegalStateError("a handler cannot stop its own consumer; call end_run()")
        runner.end(timeout_s * STOP_SHARE)
        await asyncio.wait([runner.over], timeout=timeout_s * STOP_SHARE)

    def _run_figures(self) -> RunFigures | None:
        return None if self._last_run is None else self._last_run.figures()


class _RunNotifier(RebalanceListener):
    """Notifies a run of rebalances."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def on_revoked(self, partitions: Partitions) -> None:
        await self._runner.revoke(partitions)

    def on_lost(self, partitions: Partitions) -> None:
        self._runner.lose(partitions)

    def on_assigned(self, partitions: Partitions) -> None:
        self._runner.take_over(partitions)


@contextmanager
def _ended_by(signals: Collection[signal.Signals], runner: Runner) -> Iterator[None]:
    """A context in which the first of these signals ends the run."""
    loop = asyncio.get_running_loop()
    left = set(signals)

    def release() -> None:
        while left:
            loop.remove_signal_handler(left.pop())

    def ended() -> None:
        release()
        runner.end()

    for number in signals:
        loop.add_signal_handler(number, ended)
    try:
        yield
    finally:
        release()
