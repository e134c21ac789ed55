"""Progress of long work, on standard error if that is a terminal."""

import sys
import time
from typing import Final

PROGRESS_S: Final = 0.2


class Progress:
    """Prints at most one line every `PROGRESS_S` seconds, each over the previous one."""

    def __init__(self) -> None:
        self._is_wanted = sys.stderr.isatty()
        self._printed_s = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now_s = time.monotonic()
        if self._is_wanted and now_s - self._printed_s >= PROGRESS_S:
            self._printed_s = now_s
            print(f"\r\033[K{what}: {done:,} of {total:,}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the line."""
        if self._is_wanted:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
