"""`Later`, a future whose callbacks are called at once: the one way to answer something later.

An asyncio future has its callbacks called in the next iteration of the loop, each by a handle that
is made for it: half of what it costs to answer one of thousands of requests that wait together. The
callbacks of a `Later` are called within `give` and `fail`. So they have to be short, and must
neither raise nor begin other work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Tasks = set[asyncio.Task[Any]]
"""Tasks at work, for code that has to wait for their end."""


class Later(Generic[T]):
    """A value that is not there yet. It is given, or fails, or is cancelled, once.

    After it is cancelled, `give` and `fail` do nothing, so that their caller need not ask whether
    it was.
    """

    __slots__ = ("_callbacks", "_error", "_make", "_source", "_value", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        """Whether it was given, has failed or was cancelled. Not to be set from outside."""
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: tuple[Callable[[Later[T]], object], ...] = ()
        self._make: Callable[[Any], T] | None = None
        self._source: Later[Any] | asyncio.Task[T] | None = None
        """What the value is made from and nothing else uses, so that it is cancelled with this."""

    @property
    def is_cancelled(self) -> bool:
        return isinstance(self._error, asyncio.CancelledError)

    @property
    def error(self) -> BaseException | None:
        """What it failed with, None if it was given. It must be done."""
        assert self.is_done
        return self._error

    def result(self) -> T:
        """The value. Raises what it failed with. It must be done."""
        assert self.is_done
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    # For givers.

    def give(self, value: T) -> None:
        """Set the value and call the callbacks. Does nothing if it was cancelled."""
        if self.is_done:
            assert self.is_cancelled, "given twice"
            return
        self._value = value
        self._tell()

    def fail(self, error: BaseException) -> None:
        """Set an error and call the callbacks. Does nothing if it was cancelled."""
        if self.is_done:
            assert self.is_cancelled, "given twice"
            return
        self._error = error
        self._tell()

    # For waiters.

    def cancel(self) -> bool:
        """Give up the value; False if it is done already."""
        if self.is_done:
            return False
        self._error = asyncio.CancelledError()
        source, self._source = self._source, None
        self._tell()
        if source is not None:
            source.cancel()
        return True

    def on_done(self, callback: Callable[[Later[T]], object]) -> None:
        """Have `callback` called with this when it is done: now, if it is done already."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks += (callback,)

    def then(self, make: Callable[[T], R]) -> R | Later[R]:
        """Apply `make` to the value.

        Returns the result itself if the value is there already; this saves making a
        `Later`. Otherwise returns a `Later` of the result, which fails if this fails or `make`
        raises. To cancel that one does not cancel this.

        Raises: what this failed with, if it is done and has failed; what `make` raises, if the
            value is there.
        """
        if self.is_done:
            return make(self.result())
        made: Later[R] = Later()
        made._make = make
        self._callbacks += (made._take_value,)
        return made

    def settle(self, make: Callable[[Later[T]], R]) -> Later[R]:
        """Apply `make` to this itself when it is done: given, failed or cancelled.

        Returns a `Later` of the result. To cancel that one cancels this.
        """
        made: Later[R] = Later()
        made._make = make
        made._source = self
        if self.is_done:
            made._take_end(self)
        else:
            self._callbacks += (made._take_end,)
        return made

    def __await__(self) -> Generator[Any, None, T]:
        if not self.is_done:
            waiting = asyncio.get_running_loop().create_future()

            def wake(_: Later[T]) -> None:
                if not waiting.done():
                    waiting.set_result(None)

            self.on_done(wake)
            try:
                yield from waiting
            except asyncio.CancelledError:
                # As with a loop's future: work on it for this task alone is to stop.
                self.cancel()
                raise
        return self.result()

    @staticmethod
    def of(work: Coroutine[Any, Any, T], tasks: Tasks, *, name: str) -> Later[T]:
        """What a coroutine returns, run as a task that is among `tasks` while it lives; cancelled
        with it.
        """
        later: Later[T] = Later()
        task = asyncio.get_running_loop().create_task(work, name=name)
        tasks.add(task)

        def pass_on(ended: asyncio.Task[T]) -> None:
            tasks.discard(ended)
            if ended.cancelled():
                later.cancel()
            elif (error := ended.exception()) is not None:
                if later.is_done:
                    logger.info("%s failed when nobody waited for it: %r", name, error)
                later.fail(error)
            else:
                later.give(ended.result())

        task.add_done_callback(pass_on)
        later._source = task
        return later

    def _take_value(self, source: Later[Any]) -> None:
        """Callback of `then`: `source` is done."""
        if self.is_done:
            return
        assert self._make is not None
        if source._error is not None:
            self._error = source._error
        else:
            try:
                self._value = self._make(source._value)
            except Exception as error:  # noqa: BLE001 - what was to be made failed, nothing else.
                self._error = error
        self._tell()

    def _take_end(self, source: Later[Any]) -> None:
        """Callback of `settle`: `source` is done."""
        if self.is_done:
            return
        assert self._make is not None
        try:
            self._value = self._make(source)
        except Exception as error:  # noqa: BLE001 - as above.
            self._error = error
        self._tell()

    def _tell(self) -> None:
        self.is_done = True
        # Neither is of use any more, and both may hold much.
        self._source = self._make = None
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)
