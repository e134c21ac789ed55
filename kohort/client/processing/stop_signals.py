"""Signals that end runs, for all runs of the process together.

A process has one handler for each signal. The first run that wants a signal replaces it, and the
last one restores it, in whatever order runs begin and end. The handler is set with `signal.signal`,
as asyncio does for Ctrl-C: `loop.add_signal_handler` replaces and does not return the callback that
was there. Such a callback of the application stays in place, and the loop calls it as well.
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
    """The handlers of one process. Python runs signal handlers between two instructions of the main
    thread, and this class is used only there: each method may be interrupted by `_on_signal`.
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
                "stop_on works in the main thread only, because Python handles signals there; in"
                " another thread, have a handler of the main thread call"
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
            # None: a handler that was not set from Python, and cannot be set again from here.
            self._before[number] = signal.SIG_DFL if before is None else before

    def _remove(self, run: _Run) -> None:
        others = [one for one in tuple(self._runs) if one is not run]
        # Restored first: a signal that comes before it ends this run, and none is swallowed.
        for number in run.signals.difference(*(one.signals for one in others)):
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
