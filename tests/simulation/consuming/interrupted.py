"""Cancellation at any await: the nth time that a call waits, whatever for."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Interrupted(Generic[T]):
    """Awaits a call in the task that is running, and has the task cancelled at its nth wait."""

    def __init__(self, call: Coroutine[Any, Any, T], *, at: int, later_s: float = 0.0) -> None:
        """`at`: counted from 1. `later_s`: so long after the beginning of that wait."""
        self._call = call
        self._at = at
        self._later_s = later_s
        self.has_cancelled = False

    def __await__(self) -> Generator[Any, Any, T]:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        timer: asyncio.Handle | None = None
        error: BaseException | None = None
        sent: Any = None
        waits = 0

        def cancel() -> None:
            self.has_cancelled = True
            task.cancel()

        try:
            while True:
                waiting = self._call.send(sent) if error is None else self._call.throw(error)
                waits += 1
                if waits == self._at:
                    timer = loop.call_later(self._later_s, cancel)
                error = None
                try:
                    sent = yield waiting
                except BaseException as raised:  # noqa: BLE001 - the call's business.
                    error = raised
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            if timer is not None:
                timer.cancel()
