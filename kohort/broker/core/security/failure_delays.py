"""How long failures to authenticate are kept back, which is longer for who goes on failing.

By address, never by user: to lock users out would be a tool for attackers.
"""

from collections import deque
from typing import Final

FAILURES: Final = 10
WITHIN_MS: Final = 10_000
LONGEST_MS: Final = 5_000
ADDRESSES_MAX: Final = 10_000


class FailureDelays:
    """The failures of late, by address; the address that failed longest ago goes first."""

    def __init__(self) -> None:
        self._failed_ms: dict[str, deque[int]] = {}

    def delay_ms(self, ip: str, now_ms: int, least_ms: int) -> int:
        """Note a failure; how long after its token it is told."""
        failed = self._failed_ms.pop(ip, None) or deque(maxlen=FAILURES)
        if not failed and len(self._failed_ms) >= ADDRESSES_MAX:
            del self._failed_ms[next(iter(self._failed_ms))]
        self._failed_ms[ip] = failed
        is_much = len(failed) == FAILURES and now_ms - failed[0] < WITHIN_MS
        failed.append(now_ms)
        return max(least_ms, LONGEST_MS) if is_much else least_ms
