"""An executor that runs each call at once in the caller's thread, for tests with in-memory disks
and virtual time.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class InlineExecutor(Executor):
    """Runs each call inside `submit`: memory disks do not block, and time is virtual."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn`; return a finished future with its result or exception."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - stored in the future.
            future.set_exception(error)
        return future


class InlineLoop(asyncio.SelectorEventLoop):
    """An event loop that returns results of an `InlineExecutor` without an extra iteration."""

    def run_in_executor(  # type: ignore[override]  # Typed by asyncio as a coroutine; it is a future.
        self,
        executor: Executor | None,
        func: Callable[..., T],
        *args: Any,  # noqa: ANN401 - as in asyncio.
    ) -> asyncio.Future[T]:
        """Return a finished future for an `InlineExecutor`; otherwise like asyncio."""
        if not isinstance(executor, InlineExecutor):
            return super().run_in_executor(executor, func, *args)
        return finished(self, func, *args)


def finished(
    loop: asyncio.AbstractEventLoop,
    func: Callable[..., T],
    *args: Any,  # noqa: ANN401 - as in asyncio.
) -> asyncio.Future[T]:
    """Call a function; return a finished future of the loop with its result or exception."""
    future: asyncio.Future[T] = loop.create_future()
    try:
        future.set_result(func(*args))
    except Exception as error:  # noqa: BLE001 - stored in the future.
        future.set_exception(error)
    return future
