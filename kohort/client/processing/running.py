"""`Consumer.run`: a part of `Consumer`."""

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
"""The part of the time of `stop` that handlers have; then come commits, callbacks, the group."""


class Runs(Generic[K, V]):
    """Handlers side by side."""

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
        """Have every record handled at least once, and commit what is, until `stop` or `end_run`.

        Afterwards the consumer's positions are behind what was handled without gaps, and it can
        be read on. Cancelling cancels the handlers; what they had in hand is not committed.

        Args:
            handler: called with each record, as a rule a coroutine function. A plain one may not
                take long: it keeps the loop from everything else.
            concurrency: how many handlers run at a time at most.
            ordering: "partition": one record of a partition after the other; "key": one record of
                a key of a partition after the other, records without a key as if they had the
                same. Keys are compared as bytes. A record that is tried again keeps its place.
            retries: attempts after the first one; None: for ever.
            retry_on: the exceptions that are worth one: classes, or a function that says.
            retry_backoff_ms: before the second attempt; twice as long before each further one.
            retry_backoff_max_ms: at most so long.
            retry_jitter: the share by which it is longer or shorter at random; 0 for none.
            handler_timeout_ms: after so long a handler is cancelled, which is a TimeoutError.
            dead_letter: where a record goes whose attempts are over, or that no deserialiser can
                read: a topic, which takes aiokafka (`kohort[dead-letters]`), or a coroutine
                function that returns when the `DeadLetter` is stored. Tried until it succeeds.
            on_failure: without `dead_letter`: "stop" raises a HandlerError once what is in hand is
                handled, "skip" logs the record and passes over it.
            commit_interval_ms: auto_commit_interval_ms by default. enable_auto_commit and
                commits of other kinds are left out meanwhile; `commit()` commits what is handled.
            drain_timeout_ms: what handlers have when their partitions are revoked, a quarter of
                max_poll_interval_ms at most, and at the end. Those that have not returned by then
                are cancelled, and their records come again.
            in_flight_records_limit: records that are held, waiting or in a handler.
            in_flight_bytes_limit: bytes of these, beyond which no more are taken.
            uncommitted_records_limit: of one partition, records behind the first that is not done;
                what may come again at most.
            stop_on: signals that end it, as `end_run` does; the second one acts as it would
                without this. (signal.SIGTERM,) in a container.

        Raises:
            ConfigError: an option cannot be used.
            HandlerError: see `on_failure`.
            IllegalStateError: it is running already, or there is nothing to read.
            whatever a poll raises.
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
        with engine.handed_to(runner, _Told(runner)), _ended_by(options.stop_on, runner):
            await runner.run()

    def end_run(self) -> None:
        """Have `run` return once what is in hand is handled. Handlers may call it, too."""
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
            # Looked up now, as tests on virtual time replace it.
            clock=time.monotonic,
        )

    async def _end_run(self, timeout_s: float) -> None:
        """Wait for a run to end, in a part of the time that `stop` has."""
        runner = None if self._engine is None else self._engine.runner
        if runner is None:
            return
        if runner.has_task(asyncio.current_task()):
            raise IllegalStateError("a handler cannot stop its own consumer; call end_run()")
        runner.end(timeout_s * STOP_SHARE)
        await asyncio.wait([runner.over], timeout=timeout_s * STOP_SHARE)

    def _run_figures(self) -> RunFigures | None:
        return None if self._last_run is None else self._last_run.figures()


class _Told(RebalanceListener):
    """Tells a run about its partitions."""

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
    """Within it the first of these signals ends the run."""
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
