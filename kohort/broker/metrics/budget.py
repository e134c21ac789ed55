"""Keeps label sets bounded: which get series of their own, and which are summed under one value."""

from typing import Final

TOPICS: Final = "topics"
PARTITIONS: Final = "partitions"
GROUPS: Final = "groups"


class SeriesBudget:
    """Series that may still be given out in one scrape.

    Asked in the order of creation, so that those with series keep them as others come and go.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, count: int) -> bool:
        """Whether there are `count` left, which are taken if so; all or nothing."""
        if count > self._left:
            return False
        self._left -= count
        return True
