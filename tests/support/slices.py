"""Wait as others wait for work in slices."""

import asyncio

from kohort.broker.runtime.slices import ITERATIONS_BETWEEN


async def next_slice() -> None:
    """Wait until the next slice of work that is in progress has run."""
    for _ in range(ITERATIONS_BETWEEN):
        await asyncio.sleep(0)
