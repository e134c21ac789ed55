"""What time it is, in whole milliseconds, on the clocks that a consumer goes by."""

import asyncio
import time


def loop_ms() -> int:
    """On the running loop's clock, which is that of plans: what is asked again, and when."""
    return int(asyncio.get_running_loop().time() * 1000)


def monotonic_ms() -> int:
    """On the process's clock, for what other threads see as well: membership and heartbeats, and
    what is told of them.
    """
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Since the epoch, for what is compared with the times of records."""
    return time.time_ns() // 1_000_000
