"""Pages whose modules are imported on another thread, at the first request for one of them.

The imports take tens of milliseconds, which would slow down the broker's start or block its event
loop.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

from kohort.broker.http.messages import HttpRequest

T = TypeVar("T")
A = TypeVar("A")


def lazy_pages(
    asks: Mapping[str, Callable[[T, HttpRequest], Awaitable[A]]],
    module: str,
    make: Callable[[], T],
    executor: Executor,
) -> dict[str, Callable[[HttpRequest], Awaitable[A]]]:
    """Return the pages by path; `make` is called once, after `module` was imported."""
    made: list[T] = []

    async def wait_made() -> T:
        if not made:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(executor, importlib.import_module, module)
            # Another request may have called `make` during the import.
            if not made:
                made.append(make())
        return made[0]

    def page(
        ask: Callable[[T, HttpRequest], Awaitable[A]],
    ) -> Callable[[HttpRequest], Awaitable[A]]:
        async def answer(request: HttpRequest) -> A:
            return await ask(await wait_made(), request)

        return answer

    return {path: page(ask) for path, ask in asks.items()}
