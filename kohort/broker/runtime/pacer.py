"""Lets long work on the event loop take place in slices."""

import asyncio
import time
from typing import Final

SLICE_S: Final = 0.001
"""Longest piece of work before sockets are served again, give or take one step of the work."""


class Pacer:
    """One for each piece of work; its steps call `pause` between them."""

    def __init__(self) -> None:
        self._slice_ends = time.perf_counter() + SLICE_S

    async def pause(self) -> None:
        """Let the loop turn if the slice is used up."""
        if time.perf_counter() >= self._slice_ends:
            await asyncio.sleep(0)
            self._slice_ends = time.perf_counter() + SLICE_S
