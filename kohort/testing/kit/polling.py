"""Waits for effects of clients by polling a condition."""

import asyncio
from collections.abc import Callable
from typing import Final

FIRST_LOOK_S: Final = 0.001
PAUSE_S_MAX: Final = 0.05
LATENESS: Final = 0.01
"""The interval between polls grows to this share of the time waited so far, or to PAUSE_S_MAX if
that is longer: waits of hours on virtual time need few polls."""


LONG_S: Final = 3_600.0
"""Default timeout of waits on virtual time, which costs nothing."""


async def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until the condition holds; return False after `timeout_s` on the loop's clock."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    deadline_s = began_s + timeout_s
    pause_s = FIRST_LOOK_S
    while not condition():
        now_s = loop.time()
        left_s = deadline_s - now_s
        if left_s <= 0:
            return False
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, max(PAUSE_S_MAX, (now_s - began_s) * LATENESS))
    return True
