"""Signals that end runs, shared by all runs of the process.

A process has one handler for each signal. The first run that uses a signal replaces it, and the
last one restores it, in whatever order runs begin and end. The handler is set with `signal.signal`,
as asyncio does for Ctrl-C, because `loop.add_signal_handler` does not return the callback that it
replaces. Such a callback of the application stays in place, and the loop calls it as well.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple

from kohort.client.core.errors import ConfigError


class _Run(NamedTuple):
    signals: frozenset[signal.Signals]
    loop: asyncio.AbstractEventLoop
    end: Callable[[], object]


class StopSignals:
    """The signal handlers of a process. Used in the main thread only, in which Python also runs
    signal handlers, between two instructions: `_on_signal` may interrupt every method.
    """

    def __init__(self) -> None:
        self._runs: dict[_Run, None] = {}
        self._before: dict[int, Any] = {}
        """The handlers that were replaced."""

    @contextmanager
    def ending(
        self, signals: Collection[signal.Signals], end: Callable[[], object]
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
            wanted = frozenset(map(signal.Signals, signals))
        except (TypeError, ValueError):
            raise ConfigError(
                f"stop_on must be signals, such as (signal.SIGTERM,), not {signals!r}"
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
            # None: a handler that was not set from Python, so it cannot be restored.
            self._before[number] = signal.SIG_DFL if before is None else before

    def _remove(self, run: _Run) -> None:
        others = [other for other in tuple(self._runs) if other is not run]
        # Before the run is removed, so that no signal is lost: until then, a signal ends this run.
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
