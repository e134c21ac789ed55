"""Limits the number of series: decides which label sets get series of their own."""

from typing import Final

TOPICS: Final = "topics"
PARTITIONS: Final = "partitions"
GROUPS: Final = "groups"


class SeriesBudget:
    """Series that may still be allocated in one scrape.

    Label sets must be passed in order of creation, so that old ones keep their series.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, count: int) -> bool:
        """Allocate `count` series if that many are left, otherwise none; return whether it did."""
        if count > self._left:
            return False
        self._left -= count
        return True
