"""Work of an executor done at once on the caller's thread, for disks in memory and virtual time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class InlineExecutor(Executor):
    """Runs each call inside `submit`: a disk in memory never blocks, and on virtual time nothing
    may take real time.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return a finished future with the outcome."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the future's.
            future.set_exception(error)
        return future


class InlineLoop(asyncio.SelectorEventLoop):
    """A loop that does not wait an iteration for what an `InlineExecutor` has done."""

    def run_in_executor(  # type: ignore[override]  # Typed by asyncio as a coroutine; it is a future.
        self,
        executor: Executor | None,
        func: Callable[..., T],
        *args: Any,  # noqa: ANN401 - as in asyncio.
    ) -> asyncio.Future[T]:
        """Return a finished future for an `InlineExecutor`; as asyncio for any other."""
        if not isinstance(executor, InlineExecutor):
            return super().run_in_executor(executor, func, *args)
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the future's.
            future.set_exception(error)
        return future
