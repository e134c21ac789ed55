"""How long failures to authenticate are kept back, which is longer for who goes on failing.

By address, never by user: to lock users out would be a tool for attackers.
"""

from collections.abc import Callable
from typing import Final

from kohort.broker.core.recently_used import RecentlyUsed

FAILURES: Final = 10
WITHIN_MS: Final = 10_000
LONGEST_MS: Final = 5_000
OWNERS_MAX: Final = 10_000


class FailureDelays:
    """The failures of late, by owner of addresses; who failed longest ago goes first."""

    def __init__(self, owner_of: Callable[[str], str]) -> None:
        """`owner_of` says whose an address is: who has many must not fail by each anew."""
        self._owner_of = owner_of
        # Lists, as most have one item: ten thousand deques would be as many half kilobytes.
        self._failed_ms: RecentlyUsed[str, list[int]] = RecentlyUsed(list, OWNERS_MAX)

    def delay_ms(self, ip: str, now_ms: int, least_ms: int) -> int:
        """Note a failure; how long after its token it is told."""
        failed = self._failed_ms[self._owner_of(ip)]
        is_much = len(failed) == FAILURES and now_ms - failed[0] < WITHIN_MS
        if len(failed) == FAILURES:
            del failed[0]
        failed.append(now_ms)
        return max(least_ms, LONGEST_MS) if is_much else least_ms
