"""Bounds on label sets: which get their own series, and which are summed under one value."""

from typing import Final

TOPICS: Final = "topics"
PARTITIONS: Final = "partitions"
GROUPS: Final = "groups"


class SeriesBudget:
    """Series that may still be allocated in one scrape.

    Asked in the order of creation, so that a label set keeps its series while others come and go.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, count: int) -> bool:
        """Take `count` series if as many are left, else none; return whether they were taken."""
        if count > self._left:
            return False
        self._left -= count
        return True
