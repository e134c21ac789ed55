"""`Deferred`, a future that calls its callbacks immediately; used for every deferred response.

An asyncio future schedules its callbacks for the next event loop iteration, each with a handle of
its own; that is half of a response's cost when thousands of requests wait. The callbacks of a
`Deferred` are called within `set_result` and `set_exception`. So they must be short, and must
neither raise nor start other work. Coroutines of the broker itself, which wait for a high watermark
or an fsync, await an asyncio future or task: such waits are few, and another iteration does not
matter to them.
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
"""Running tasks, so that their end can be awaited."""


class Deferred(Generic[T]):
    """A future: it is completed once, by a result, an error or its cancellation.

    After a cancellation `set_result` and `set_exception` do nothing, so callers need not check.
    """

    __slots__ = ("_callbacks", "_make", "_source", "_value", "error", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        """Whether it has a result or an error, or was cancelled. Read-only."""
        self._value: Any = None
        self.error: BaseException | None = None
        """The error; None if there is a result, or nothing yet. Read-only."""
        self._callbacks: tuple[Callable[[Deferred[T]], object], ...] = ()
        self._make: Callable[[Any], T] | None = None
        self._source: Deferred[Any] | asyncio.Task[T] | None = None
        """The source of the result, used only by this object and therefore cancelled with it."""

    @property
    def is_cancelled(self) -> bool:
        return isinstance(self.error, asyncio.CancelledError)

    def result(self) -> T:
        """Return the result, or raise the error. Call this only when done."""
        assert self.is_done
        if self.error is not None:
            raise self.error
        value: T = self._value
        return value

    # For producers.

    def set_result(self, value: T) -> None:
        """Set the result and call the callbacks. Does nothing if it was cancelled."""
        if self.is_done:
            assert self.is_cancelled, "set twice"
            return
        make = self._make
        if make is None:
            self._value = value
        else:
            try:
                self._value = make(value)
            except Exception as error:  # noqa: BLE001 - becomes the error.
                self.error = error
        self._notify()

    def set_exception(self, error: BaseException) -> None:
        """Set an error and call the callbacks. Does nothing if it was cancelled."""
        if self.is_done:
            assert self.is_cancelled, "set twice"
            return
        self.error = error
        self._notify()

    def take(self, source: Deferred[Any]) -> None:
        """Complete with the result or the error of `source`, which is done."""
        if source.error is not None:
            self.set_exception(source.error)
        else:
            self.set_result(source._value)

    # For consumers.

    def cancel(self) -> bool:
        """Cancel the result; return False if it is set or cancelled already."""
        if self.is_done:
            return False
        self.error = asyncio.CancelledError()
        source, self._source = self._source, None
        self._notify()
        if source is not None:
            source.cancel()
        return True

    def add_done_callback(self, callback: Callable[[Deferred[T]], object]) -> None:
        """Call `callback` with this object when it is done; immediately if it already is."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks += (callback,)

    def map(self, make: Callable[[T], R]) -> R | Deferred[R]:
        """Apply `make` to the result.

        Returns the value of `make` if the result is available, otherwise a `Deferred` of that
        value, which fails if this object fails or `make` raises. To save an object, `self` becomes
        that `Deferred` if it has no callbacks yet; its own result is then no longer available.

        Raises: the error of this object, or of `make`, if this object is done.
        """
        if self.is_done:
            return make(self.result())
        if self._make is None and not self._callbacks:
            made = cast("Deferred[R]", self)
            made._make = make
            return made
        made = Deferred()
        made._make = make
        self._callbacks += (made.take,)
        return made

    def finally_(self, make: Callable[[Deferred[T]], R]) -> Deferred[R]:
        """Apply `make` to this object when it is done, has failed or was cancelled.

        Returns a `Deferred` of the value of `make`. Cancelling it cancels this object.
        """
        made: Deferred[R] = Deferred()
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

            def wake(_: Deferred[T]) -> None:
                if not waiting.done():
                    waiting.set_result(None)

            self.add_done_callback(wake)
            try:
                yield from waiting
            except asyncio.CancelledError:
                # As with asyncio's futures: cancelling the waiting task cancels this object.
                self.cancel()
                raise
        return self.result()

    @staticmethod
    def from_coroutine(work: Coroutine[Any, Any, T], tasks: Tasks, *, name: str) -> Deferred[T]:
        """Run a coroutine as a task, which is in `tasks` while it runs; return a `Deferred` of its
        result. Cancelling the `Deferred` cancels the task.
        """
        deferred: Deferred[T] = Deferred()
        task = asyncio.get_running_loop().create_task(work, name=name)
        tasks.add(task)

        def pass_on(ended: asyncio.Task[T]) -> None:
            tasks.discard(ended)
            if ended.cancelled():
                deferred.cancel()
            elif (error := ended.exception()) is not None:
                if deferred.is_done:
                    logger.info("%s failed after its result had been cancelled: %r", name, error)
                deferred.set_exception(error)
            else:
                deferred.set_result(ended.result())

        task.add_done_callback(pass_on)
        deferred._source = task
        return deferred

    def _take_end(self, source: Deferred[Any]) -> None:
        """Callback of `finally_`: `source` is done."""
        if self.is_done:
            return
        assert self._make is not None
        try:
            self._value = self._make(source)
        except Exception as error:  # noqa: BLE001 - becomes the error.
            self.error = error
        self._notify()

    def _notify(self) -> None:
        self.is_done = True
        # `_source` and `_make` are not needed any more, and may refer to much memory.
        self._source = self._make = None
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)
