"""What the history has still to tell of one group, and whether it tells it right."""

from collections import deque

from kohort.groups.history.model import (
    AvoidedRecord,
    HistoryRecord,
    RebalanceOutcome,
    RebalanceRecord,
)
from tests.simulation.causes import Cause, Rebalance
from tests.simulation.tally import Tally


class Awaited:
    """Records are to come in the order of what happened."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.rebalances: deque[Rebalance] = deque()
        self.avoided: deque[Cause] = deque()
        self._lost: list[Rebalance] = []
        """Rebalances that a broker left unfinished when it went."""

    def told(self, record: HistoryRecord) -> str | None:
        """What is wrong with it."""
        if isinstance(record, AvoidedRecord):
            if not self.avoided:
                return f"an avoided rebalance that was none: {record}"
            return self.avoided.popleft().differs_from_record(record.trigger)
        if record.outcome is RebalanceOutcome.UNFINISHED:
            return self._find_unfinished(record)
        if not self.rebalances:
            return f"a rebalance that was none: {record}"
        self._tally.recorded += 1
        return self.rebalances.popleft().differs_from_record(record)

    def broker_died(self) -> None:
        self._tally.killed += len(self.rebalances)
        self._lost.extend(self.rebalances)
        self.rebalances.clear()
        self.avoided.clear()

    def _find_unfinished(self, record: RebalanceRecord) -> str | None:
        """It may be told when the broker stops, or when the next one starts, or, after a kill, not
        at all.
        """
        for rebalances in (self.rebalances, self._lost):
            for known in rebalances:
                if known.cause.differs_from_record(record.trigger) is None:
                    rebalances.remove(known)
                    self._tally.unfinished += 1
                    return None
        return f"no such rebalance was under way: {record.trigger}"
