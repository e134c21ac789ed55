"""An answer that will be there: a future that tells at once, without the loop.

A loop's future has its callbacks called in a later turn, each by a handle that is made for it: half
of what it costs to answer one of thousands who wait together. Those who wait for a promise are told
by whoever keeps it, so what they do is to be short, must not raise, and begins nothing new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Promise(Generic[T]):
    """Kept, broken or cancelled, once. What an `asyncio.Future` has of the same name means the
    same.
    """

    __slots__ = ("_callbacks", "_error", "_is_done", "_result")

    def __init__(self) -> None:
        self._is_done = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._callbacks: tuple[Callable[[Promise[T]], object], ...] = ()

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return isinstance(self._error, asyncio.CancelledError)

    def result(self) -> T:
        """Raises what it was broken with."""
        assert self._is_done
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def exception(self) -> BaseException | None:
        assert self._is_done
        return self._error

    def set_result(self, result: T) -> None:
        assert not self._is_done, "done twice"
        self._result = result
        self._tell()

    def set_exception(self, error: BaseException) -> None:
        assert not self._is_done, "done twice"
        self._error = error
        self._tell()

    def cancel(self) -> bool:
        """Nobody waits any more; False if it is done already."""
        if self._is_done:
            return False
        self._error = asyncio.CancelledError()
        self._tell()
        return True

    def add_done_callback(self, callback: Callable[[Promise[T]], object]) -> None:
        """Call it when this is done, or now if it is."""
        if self._is_done:
            callback(self)
        else:
            self._callbacks += (callback,)

    def __await__(self) -> Generator[Any, None, T]:
        if not self._is_done:
            waiting = asyncio.get_running_loop().create_future()

            def wake(_: Promise[T]) -> None:
                if not waiting.done():
                    waiting.set_result(None)

            self.add_done_callback(wake)
            try:
                yield from waiting
            except asyncio.CancelledError:
                # As with a loop's future: whoever works on it for this task alone is to stop.
                self.cancel()
                raise
        return self.result()

    def _tell(self) -> None:
        self._is_done = True
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)
