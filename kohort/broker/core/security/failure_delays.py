"""Delays of responses to failed authentications, longer after repeated failures.

Failures are counted by address block, never by user, or attackers could lock users out.
"""

from collections.abc import Callable
from typing import Final

from kohort.broker.core.recently_used import RecentlyUsed

FAILURES: Final = 10
WITHIN_MS: Final = 10_000
LONGEST_MS: Final = 5_000
BLOCKS_MAX: Final = 10_000


class FailureDelays:
    """Recent failures by address block; the one that failed longest ago is dropped first."""

    def __init__(self, address_block_of: Callable[[str], str]) -> None:
        """Failures are counted by `address_block_of` the address."""
        self._address_block_of = address_block_of
        # Lists, because most have one item, and a deque takes half a kilobyte.
        self._failed_ms: RecentlyUsed[str, list[int]] = RecentlyUsed(list, BLOCKS_MAX)

    def delay_ms(self, ip: str, now_ms: int, least_ms: int) -> int:
        """Record a failure; return the delay of its response from the arrival of the token."""
        failed = self._failed_ms[self._address_block_of(ip)]
        is_much = len(failed) == FAILURES and now_ms - failed[0] < WITHIN_MS
        if len(failed) == FAILURES:
            del failed[0]
        failed.append(now_ms)
        return max(least_ms, LONGEST_MS) if is_much else least_ms
