"""What the history has still to tell of one group, and whether it tells it right."""

from collections import deque

from kohort.groups.events import TriggerKind
from kohort.groups.history.model import (
    AvoidedRecord,
    HistoryRecord,
    RebalanceOutcome,
    RebalanceRecord,
    TriggerRecord,
)
from kohort.groups.history.sentence import PROBLEMS
from tests.simulation.causes import Cause, Rebalance
from tests.simulation.tally import Tally


class Awaited:
    """Records are to come in the order of what happened."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.rebalances: deque[Rebalance] = deque()
        self.avoided: deque[Cause] = deque()
        self._fought_over: set[str] = set()
        """Instance ids of which the history has told that two processes use them."""
        self._lost: list[Rebalance] = []
        """Rebalances that a broker left unfinished when it went."""

    def told(self, record: HistoryRecord) -> str | None:
        if isinstance(record, AvoidedRecord):
            if record.trigger.kind in PROBLEMS:
                # Of something beside the rebalances; the truth here is about rebalances.
                self._note_problem(record.trigger)
                return None
            return self._find_avoided(record)
        assert isinstance(record, RebalanceRecord)
        if record.outcome is RebalanceOutcome.UNFINISHED:
            return self._find_unfinished(record)
        for cause in record.further_causes:
            self._note_problem(cause)
        if not self.rebalances:
            return f"a rebalance that was none: {record}"
        self._tally.recorded += 1
        return self.rebalances.popleft().differs_from_record(record)

    def unrecorded(self) -> list[Cause]:
        """Avoided rebalances that should have been recorded by now."""
        return [cause for cause in self.avoided if not self._may_be_left_out(cause)]

    def _find_avoided(self, record: AvoidedRecord) -> str | None:
        wrong: str | None = f"an avoided rebalance that was none: {record}"
        while self.avoided:
            cause = self.avoided.popleft()
            wrong = cause.differs_from_record(record.trigger)
            if wrong is None or not self._may_be_left_out(cause):
                break
        return wrong

    def _note_problem(self, trigger: TriggerRecord) -> None:
        if trigger.kind is TriggerKind.INSTANCE_FENCED and trigger.instance_id is not None:
            self._fought_over.add(trigger.instance_id)

    def _may_be_left_out(self, cause: Cause) -> bool:
        """Whether two processes took an instance id from each other: recorded once."""
        instance = None if cause.process is None else cause.process.traits.instance
        return cause.kind is TriggerKind.STATIC_REPLACED and instance in self._fought_over

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
