"""How long answers to failed authentications are delayed; repeated failures are delayed longer.

Counted by address, never by user: attackers could use that to lock users out.
"""

from collections.abc import Callable
from typing import Final

from kohort.broker.core.recently_used import RecentlyUsed

FAILURES: Final = 10
WITHIN_MS: Final = 10_000
LONGEST_MS: Final = 5_000
OWNERS_MAX: Final = 10_000


class FailureDelays:
    """Recent failures by owner of addresses; the owner that failed longest ago is dropped first."""

    def __init__(self, address_block_of: Callable[[str], str]) -> None:
        """`address_block_of` gives the owner of an address: failures are counted by owner."""
        self._address_block_of = address_block_of
        # Lists, as most have one item: ten thousand deques would take half a kilobyte each.
        self._failed_ms: RecentlyUsed[str, list[int]] = RecentlyUsed(list, OWNERS_MAX)

    def delay_ms(self, ip: str, now_ms: int, least_ms: int) -> int:
        """Record a failure; return the delay of its answer, from the arrival of the token."""
        failed = self._failed_ms[self._address_block_of(ip)]
        is_much = len(failed) == FAILURES and now_ms - failed[0] < WITHIN_MS
        if len(failed) == FAILURES:
            del failed[0]
        failed.append(now_ms)
        return max(least_ms, LONGEST_MS) if is_much else least_ms
