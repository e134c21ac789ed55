"""The clocks of a consumer, in whole milliseconds."""

import asyncio
import time


def loop_ms() -> int:
    """The running loop's clock, used for scheduling: retries, backoffs and refreshes."""
    return int(asyncio.get_running_loop().time() * 1000)


def monotonic_ms() -> int:
    """The monotonic clock, for data shared with other threads."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Wall-clock time since the epoch, comparable with record timestamps."""
    return time.time_ns() // 1_000_000
