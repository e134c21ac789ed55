"""Counts of a ledger, over all groups of a world."""

from collections import Counter
from collections.abc import Callable

from kohort.groups.events import TriggerKind
from tests.simulation.causes import Cause


class Tally:
    """What has happened, counted; `fail` is told what is wrong."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self.fail = fail
        self.rebalances: Counter[TriggerKind] = Counter()
        """Rebalances that had a cause, by cause."""
        self.further: Counter[TriggerKind] = Counter()
        """Causes that came while one was under way."""
        self.recorded = 0
        """Rebalances that are complete in the history."""
        self.unfinished = 0
        """Rebalances that the history has as cut short by the broker's end."""
        self.killed = 0
        """Rebalances that are missing because the broker was killed."""
        self.misses = 0
        self.size_max = 2**31 - 1
        """group.max.size of the broker that runs."""

    def begun(self, cause: Cause) -> None:
        self.rebalances[cause.kind] += 1
