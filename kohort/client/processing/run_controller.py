"""Starts and ends the runs of one consumer, one at a time: `Consumer.run` and `end_run`."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple

from kohort.client.core.errors import ConfigError, IllegalStateError
from kohort.client.core.fetch.buffers import Records
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.work_limits import BatchLimits
from kohort.client.engine.engine import Engine
from kohort.client.group.listener import Partitions, RebalanceListener
from kohort.client.processing.attempts import Attempts
from kohort.client.processing.dead_letters import DeadLetterWriter, sink_for
from kohort.client.processing.figures import Counts, RunFigures
from kohort.client.processing.options import Handler, RunOptions, check_handler
from kohort.client.processing.runner import Runner
from kohort.client.processing.source import CommitDone, Positions
from kohort.client.processing.transactions import check_producer


class _Run(NamedTuple):
    signals: frozenset[signal.Signals]
    loop: asyncio.AbstractEventLoop
    end: Callable[[], object]


class StopSignals:
    """Handles the signals that end runs, for all runs of the process. Used in the main thread only,
    where Python also runs signal handlers, so `_on_signal` may interrupt every method.

    A process has one handler for each signal. The first run that uses a signal replaces the
    handler, and the last one to end restores it, whichever that is. The handler is set with
    `signal.signal`, as asyncio does for Ctrl-C, because `loop.add_signal_handler` does not return
    the callback that it replaces. A callback that the application has set with
    `loop.add_signal_handler` stays in place, and the loop calls it as well.
    """

    def __init__(self) -> None:
        self._runs: dict[_Run, None] = {}
        self._before: dict[int, Any] = {}
        """The handlers that were replaced, by signal number."""

    @contextmanager
    def ending(
        self, signals: signal.Signals | Collection[signal.Signals], end: Callable[[], object]
    ) -> Iterator[None]:
        """A context in which the first of these signals calls `end` on the running loop. A second
        signal has its usual effect.

        Raises:
            ConfigError: this is not the main thread, or a signal cannot be handled.
        """
        if not signals:
            yield
            return
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError(
                "stop_on works only in the main thread, where Python runs signal handlers;"
                " elsewhere, let a signal handler of the main thread call"
                " loop.call_soon_threadsafe(consumer.end_run)"
            )
        try:
            listed = (signals,) if isinstance(signals, signal.Signals) else signals
            wanted = frozenset(map(signal.Signals, listed))
        except (TypeError, ValueError):
            raise ConfigError(
                f"stop_on must be signals, such as signal.SIGTERM, not {signals!r}"
            ) from None
        run = _Run(wanted, asyncio.get_running_loop(), end)
        try:
            self._add(run)
            yield
        finally:
            self._remove(run)

    def _add(self, run: _Run) -> None:
        self._runs[run] = None
        for number in run.signals:
            if signal.getsignal(number) == self._on_signal:
                continue
            try:
                before = signal.signal(number, self._on_signal)
            except OSError as error:
                raise ConfigError(f"stop_on: {number.name} cannot be handled") from error
            # None means that the previous handler was not set from Python: it cannot be restored.
            self._before[number] = signal.SIG_DFL if before is None else before

    def _remove(self, run: _Run) -> None:
        others = [other for other in tuple(self._runs) if other is not run]
        # Restore the handlers before removing the run: until then, a signal still ends the run.
        for number in run.signals.difference(*(other.signals for other in others)):
            before = self._before.pop(number, None)
            # The application may have set another handler meanwhile.
            if before is not None and signal.getsignal(number) == self._on_signal:
                signal.signal(number, before)
        self._runs.pop(run, None)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        for run in tuple(self._runs):
            if number in run.signals:
                self._remove(run)
                if not run.loop.is_closed():
                    run.loop.call_soon_threadsafe(run.end)


STOP_SIGNALS: Final = StopSignals()

STOP_SHARE: Final = 0.6
"""Share of `stop`'s timeout for handlers; the rest is for commits, callbacks and leaving the
group."""


class RunController:
    def __init__(self) -> None:
        self._counts: Counts | None = None
        """The counters, summed over all runs."""
        self._current: Runner | None = None
        self._last: Runner | None = None
        """The current run, or else the previous one."""

    async def run(
        self,
        engine: Engine,
        handler: Handler,
        options: RunOptions,
        batches: BatchLimits | None = None,
    ) -> None:
        """Handle records one by one, or in batches."""
        check_handler(handler)
        if self._current is not None:
            raise IllegalStateError("run() is already running")
        check_dead_letter(options.dead_letter, engine.subscription)
        if self._counts is None:
            self._counts = Counts()
        runner = self._current = self._last = _runner(
            engine, handler, options, batches, self._counts
        )
        try:
            with (
                engine.handed_to(_RunNotifier(runner), runner.committable),
                STOP_SIGNALS.ending(options.stop_on, runner.end),
            ):
                await runner.run()
        finally:
            self._current = None

    def end(self) -> None:
        if self._current is not None:
            self._current.end()

    async def end_within(self, timeout_s: float) -> None:
        """End the current run, if any, and wait for it, for STOP_SHARE of `timeout_s` at most."""
        runner = self._current
        if runner is None:
            return
        if runner.has_task(asyncio.current_task()):
            raise IllegalStateError("a handler cannot stop its own consumer; call end_run()")
        runner.end(timeout_s * STOP_SHARE)
        await asyncio.wait([runner.over], timeout=timeout_s * STOP_SHARE)

    def figures(self) -> RunFigures | None:
        """The figures of the current run, or else of the last one."""
        return None if self._last is None else self._last.figures()


def check_dead_letter(
    dead_letter: str | DeadLetterWriter | None, subscription: Subscription
) -> None:
    """Raise a ConfigError if the consumer would read its own dead letters."""
    if isinstance(dead_letter, str) and (
        subscription.wants(dead_letter)
        or any(partition.topic == dead_letter for partition in subscription.assigned)
    ):
        raise ConfigError(
            f"dead_letter {dead_letter!r} is a topic that this consumer reads: it would handle"
            " its dead letters again and again. Use another topic or pattern"
        )


def _runner(
    engine: Engine,
    handler: Handler,
    options: RunOptions,
    batches: BatchLimits | None,
    counts: Counts,
) -> Runner:
    config = engine.config
    if options.producer is not None:
        check_producer(options.producer)
        if config.group_id is None:
            raise ConfigError("producer needs a group_id: the transactions commit its offsets")
    interval_ms = options.commit_interval_ms
    return Runner(
        _EngineSource(engine, options.dead_letter),
        options,
        Attempts(
            handler,
            read_key=config.key_deserializer,
            read_value=config.value_deserializer,
            timeout_ms=options.handler_timeout_ms,
            around=options.around,
        ),
        sink_for(options.dead_letter, config, options.producer),
        counts,
        group_id=config.group_id,
        batches=batches,
        producer=options.producer,
        commit_interval_ms=config.auto_commit_interval_ms if interval_ms is None else interval_ms,
        # Looked up at call time, because tests on virtual time replace it.
        clock=time.monotonic,
    )


class _RunNotifier(RebalanceListener):
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def on_revoked(self, partitions: Partitions) -> None:
        await self._runner.revoke(partitions)

    def on_lost(self, partitions: Partitions) -> None:
        self._runner.lose(partitions)

    def on_assigned(self, partitions: Partitions) -> None:
        self._runner.take_over(partitions)


class _EngineSource:
    def __init__(self, engine: Engine, dead_letter: str | DeadLetterWriter | None) -> None:
        self._engine = engine
        self._dead_letter = dead_letter
        self._count_max = engine.config.max_poll_records
        # A drain runs in a callback, whose run time counts as time between polls: use half of it.
        self.delay_max_s = engine.config.max_poll_interval_ms / 1000 / 2

    @property
    def assigned(self) -> Collection[TopicPartition]:
        return self._engine.positions.assigned

    @property
    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._engine.positions.consumed()

    @property
    def is_lost(self) -> bool:
        member = self._engine.member
        return member is not None and member.has_expired

    @property
    def can_commit(self) -> bool:
        return self._engine.commits is not None

    async def poll(
        self,
        timeout_s: float,
        take: Callable[[], Any],
        only: frozenset[TopicPartition] | None,
    ) -> object:
        return await self._engine.poll(timeout_s, take, only)

    def take(self, count: int, only: frozenset[TopicPartition] | None) -> Records:
        # Check again: since the run began, the subscription or the matched topics may have changed.
        check_dead_letter(self._dead_letter, self._engine.subscription)
        return self._engine.fetcher.take(min(count, self._count_max), only)

    def wake(self) -> None:
        self._engine.fetcher.wake()

    async def commit(self, offsets: Positions, timeout_s: float) -> None:
        await self._engine.group_commits().offsets.commit(offsets, timeout_s)

    def commit_soon(self, offsets: Positions, on_done: CommitDone) -> None:
        self._engine.group_commits().offsets.commit_async(offsets, None, on_done=on_done)

    async def confirm(self, timeout_s: float) -> bool:
        if not self._engine.subscription.is_by_group:
            return True  # Without a group, no other member can own these partitions.
        member = self._engine.member
        return member is not None and await member.confirm(timeout_s)

    def skip(self, partition: TopicPartition, offset: int) -> None:
        self._engine.positions.seek(partition, offset)
        self._engine.wake()

    def go_back(self, offsets: Positions) -> None:
        positions = self._engine.positions
        for partition, state in [(tp, positions.find(tp)) for tp in positions.assigned]:
            if state is None or state.position is None:
                continue
            known = offsets.get(partition)
            if known is None:
                positions.forget(partition)
            elif known.offset != state.position:
                positions.seek(partition, known.offset, known.leader_epoch)
        self._engine.wake()
