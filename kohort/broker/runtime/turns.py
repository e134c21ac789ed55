"""Goes through steps with a turn of the loop for each."""

import asyncio
from typing import TypeVar

from kohort.broker.core.steps import Steps

T = TypeVar("T")


async def in_turns(steps: Steps[T]) -> T:
    """What the steps make; other tasks have the loop in between."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made: T = stop.value
            return made
        await asyncio.sleep(0)
