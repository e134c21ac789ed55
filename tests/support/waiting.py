"""Waits for conditions that have no event, by polling; never for a fixed time."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from kohort.broker.runtime.slices import ITERATIONS_BETWEEN

T = TypeVar("T")


def wait_until(
    condition: Callable[[], bool],
    what: str | Callable[[], str],
    *,
    timeout_s: float = 60,
    pause_s: float = 0.05,
) -> None:
    """Polls until the condition holds; the failure names what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            message = f"not within {timeout_s} s: {what if isinstance(what, str) else what()}"
            raise AssertionError(message)
        time.sleep(pause_s)


async def until(condition: Callable[[], bool], *, timeout_s: float = 60) -> None:
    """Polls until the condition holds, while others have the loop. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - a look from outside, at what has no event.
            await asyncio.sleep(0.01)


async def turns(count: int = 5) -> None:
    """Let the tasks that are ready go on, so many iterations of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def next_slice() -> None:
    """Wait until the next slice of work that is in progress has run."""
    await turns(ITERATIONS_BETWEEN)


class LoopTurns:
    """How often a task that does nothing had the loop."""

    count = 0


@asynccontextmanager
async def counted_turns() -> AsyncIterator[LoopTurns]:
    """A context that counts how often others have the loop while its work goes on."""
    others = LoopTurns()

    async def count() -> None:
        while True:
            others.count += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield others
    finally:
        counting.cancel()


async def iterations_of(work: Awaitable[T]) -> tuple[T, int]:
    """Return the result of `work`, and the event loop iterations until it was there."""
    task = asyncio.ensure_future(work)
    iterations = 0
    while not task.done():
        iterations += 1
        await asyncio.sleep(0)
    return task.result(), iterations
