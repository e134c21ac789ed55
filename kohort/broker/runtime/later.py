"""`Later`, a future that calls its callbacks immediately: every answer that is given later is one.

An asyncio future has its callbacks called in the next loop iteration, each by a handle created for
it: half of the cost of answering one of thousands of waiting requests. The callbacks of a `Later`
are called within `give` and `fail`. So they must be short, and must neither raise nor start other
work. Where a coroutine of the broker itself waits (for a high watermark, or an fsync), it awaits an
asyncio future or task: such waits are few, and another iteration does not matter to them.
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
"""Running tasks, for code that has to wait for their end."""


class Later(Generic[T]):
    """A value that is not available yet. It is given, fails, or is cancelled, once.

    After it is cancelled, `give` and `fail` do nothing, so that their caller need not check.
    """

    __slots__ = ("_callbacks", "_make", "_source", "_value", "error", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        """Whether it was given, has failed or was cancelled. Not to be set from outside."""
        self._value: Any = None
        self.error: BaseException | None = None
        """The error that it failed with; None if it was given, and until it is done. Not to be set
        from outside."""
        self._callbacks: tuple[Callable[[Later[T]], object], ...] = ()
        self._make: Callable[[Any], T] | None = None
        self._source: Later[Any] | asyncio.Task[T] | None = None
        """The source of the value, used by nothing else and therefore cancelled with this."""

    @property
    def is_cancelled(self) -> bool:
        return isinstance(self.error, asyncio.CancelledError)

    def result(self) -> T:
        """Return the value, or raise the error that it failed with. It must be done."""
        assert self.is_done
        if self.error is not None:
            raise self.error
        value: T = self._value
        return value

    # For producers.

    def give(self, value: T) -> None:
        """Set the value and call the callbacks. Does nothing if it was cancelled."""
        if self.is_done:
            assert self.is_cancelled, "given twice"
            return
        make = self._make
        if make is None:
            self._value = value
        else:
            try:
                self._value = make(value)
            except Exception as error:  # noqa: BLE001 - what was to be made failed, nothing else.
                self.error = error
        self._notify()

    def fail(self, error: BaseException) -> None:
        """Set an error and call the callbacks. Does nothing if it was cancelled."""
        if self.is_done:
            assert self.is_cancelled, "given twice"
            return
        self.error = error
        self._notify()

    # For consumers.

    def cancel(self) -> bool:
        """Cancel it; False if it is done already."""
        if self.is_done:
            return False
        self.error = asyncio.CancelledError()
        source, self._source = self._source, None
        self._notify()
        if source is not None:
            source.cancel()
        return True

    def on_done(self, callback: Callable[[Later[T]], object]) -> None:
        """Call `callback` with this when it is done: now, if it is done already."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks += (callback,)

    def into(self, make: Callable[[T], R]) -> R | Later[R]:
        """Apply `make` to the value.

        Returns the result itself if the value is there already. Otherwise a `Later` of it, which
        fails if this fails or `make` raises: this one itself, unless something waits for the value
        as it is. So where nothing does, to cancel the result is to cancel this.

        Raises: what this failed with, if it is done and has failed; what `make` raises, if the
            value is there.
        """
        if self.is_done:
            return make(self.result())
        if self._make is None and not self._callbacks:
            made = cast("Later[R]", self)
            made._make = make
            return made
        made = Later()
        made._make = make
        self._callbacks += (made._take_value,)
        return made

    def settle(self, make: Callable[[Later[T]], R]) -> Later[R]:
        """Apply `make` to this `Later` itself when it is done: given, failed or cancelled.

        Returns a `Later` of the result. Cancelling that one cancels this.
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
                # As with asyncio's futures: cancelling the waiting task cancels this.
                self.cancel()
                raise
        return self.result()

    @staticmethod
    def of(work: Coroutine[Any, Any, T], tasks: Tasks, *, name: str) -> Later[T]:
        """Run a coroutine as a task, kept in `tasks` while it runs; return its result. Cancelling
        the result cancels the task.
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
                    logger.info("%s failed after its waiter had gone: %r", name, error)
                later.fail(error)
            else:
                later.give(ended.result())

        task.add_done_callback(pass_on)
        later._source = task
        return later

    def _take_value(self, source: Later[Any]) -> None:
        """Callback of `into`: `source` is done."""
        if source.error is not None:
            self.fail(source.error)
        else:
            self.give(source._value)

    def _take_end(self, source: Later[Any]) -> None:
        """Callback of `settle`: `source` is done."""
        if self.is_done:
            return
        assert self._make is not None
        try:
            self._value = self._make(source)
        except Exception as error:  # noqa: BLE001 - as above.
            self.error = error
        self._notify()

    def _notify(self) -> None:
        self.is_done = True
        # Neither is needed any more, and both may hold much memory.
        self._source = self._make = None
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)
