"""Waits for what clients bring about, whose steps nothing announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

FIRST_LOOK_S: Final = 0.001
LOOKS_S_MAX: Final = 0.05
"""Soon at first, as most waits are short; twenty times a second later on."""


async def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it holds within that time, on the loop's clock."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    pause_s = FIRST_LOOK_S
    while not condition():
        left_s = deadline_s - loop.time()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, LOOKS_S_MAX)
    return True
