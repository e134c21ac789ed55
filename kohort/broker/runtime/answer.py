"""The one way in which something is answered later.

A loop's future has its callbacks called in a later turn, each by a handle that is made for it: half
of what it costs to answer one of thousands that wait together. A waiter of a `Later` is told at
once, by the code that gives the value. So what is called then is to be short, must not raise, and
begins nothing new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Tasks = set[asyncio.Task[Any]]
"""Tasks at work, for code that has to wait for their end."""


class Later(Generic[T]):
    """A value that will be given, fail or be cancelled, once.

    Cancelled, its value is not waited for any more: what is given after that is dropped, and the
    giver need not ask before.
    """

    __slots__ = ("_callbacks", "_error", "_make", "_source", "_value", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        """Given, failed or cancelled; set by this alone."""
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: tuple[Callable[[Later[T]], object], ...] = ()
        self._make: Callable[[Any], T] | None = None
        self._source: Later[Any] | asyncio.Task[T] | None = None
        """What the value is made of, where that is for this alone."""

    @property
    def is_cancelled(self) -> bool:
        return isinstance(self._error, asyncio.CancelledError)

    @property
    def error(self) -> BaseException | None:
        """What it failed with; of one that is done."""
        assert self.is_done
        return self._error

    def result(self) -> T:
        """The value of one that is done. Raises what it failed with."""
        assert self.is_done
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    # For givers.

    def give(self, value: T) -> None:
        """Hand the value over; dropped if it was cancelled."""
        if self.is_done:
            assert self.is_cancelled, "given twice"
            return
        self._value = value
        self._tell()

    def fail(self, error: BaseException) -> None:
        """There will be no value; dropped if it was cancelled."""
        if self.is_done:
            assert self.is_cancelled, "given twice"
            return
        self._error = error
        self._tell()

    # For waiters.

    def cancel(self) -> bool:
        """Drop the value that is to come; False if it is done already."""
        if self.is_done:
            return False
        self._error = asyncio.CancelledError()
        source, self._source = self._source, None
        self._tell()
        if source is not None:
            source.cancel()
        return True

    def on_done(self, callback: Callable[[Later[T]], object]) -> None:
        """Call it with this when it is done, or now if it is."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks += (callback,)

    def then(self, make: Callable[[T], R]) -> R | Later[R]:
        """What is made from the value: at once if that is there, which costs nothing, or later.

        What the value is to be given to is one's own: to cancel what is made from it drops that and
        nothing else. Raises what this failed with, if it has.
        """
        if self.is_done:
            return make(self.result())
        made: Later[R] = Later()
        made._make = make
        self._callbacks += (made._take_value,)
        return made

    def settle(self, make: Callable[[Later[T]], R]) -> Later[R]:
        """What is made from this when it is done, however it ended; cancelled, it cancels this."""
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
        """Callback of `then`: what this is made from is there, or will not be."""
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
        """Callback of `settle`: what this is made from has come to its end."""
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
