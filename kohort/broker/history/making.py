"""What makes records, in one place, imported with the first of them: a start needs none of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kohort.broker.core.group.begun import Begun
from kohort.broker.core.group.records import GroupRecord
from kohort.broker.core.history.build import (
    Built,
    build_avoided,
    build_steps,
    let_go,
)
from kohort.broker.core.history.facts import RebalanceFacts
from kohort.broker.core.history.fold import AvoidedFacts
from kohort.broker.core.history.model import HistoryRecord, RebalanceOutcome, RebalanceRecord
from kohort.broker.core.history.moves import NONE_TAKEN, TakenPartitions
from kohort.broker.core.history.recovered import completed, recovered
from kohort.broker.core.history.text import parse_text, text_steps
from kohort.broker.core.steps import Steps, at_once
from kohort.broker.history.announcements import RebalanceLog
from kohort.broker.history.closing_queue import Waiting
from kohort.broker.runtime.clock import Clock

MEMBERS_OF_RUNNING: Final = 100
"""Members listed of a rebalance that runs, whose record is made on the spot whenever asked for."""


_WITH_GENERATION: Final = frozenset({RebalanceOutcome.STABLE, RebalanceOutcome.EMPTY})


class Making:
    """Makes the records of all groups; knows what the last one of each has left for the next."""

    def __init__(self, clock: Clock) -> None:
        self.lines = RebalanceLog(clock)
        self._taken: dict[str, TakenPartitions] = {}
        """Partitions of cooperative groups that stand still after their last rebalance."""

    def record_steps(self, waiting: Waiting) -> Steps[HistoryRecord]:
        """The record of what is complete; to be gone through in order, for each group."""
        group_id, closed = waiting.group_id, waiting.closed
        assert closed is not None
        if isinstance(closed, AvoidedFacts):
            return build_avoided(group_id, closed)
        taken = self._taken.get(group_id, NONE_TAKEN)
        record, taken_after = yield from build_steps(
            group_id, closed, until_ms=waiting.until_ms, taken=taken
        )
        if taken_after:
            self._taken[group_id] = taken_after
        else:
            self.forget(group_id)
        return record

    def record_of(self, waiting: Waiting) -> HistoryRecord:
        """The same, at once."""
        return at_once(self.record_steps(waiting))

    def snapshot(self, group_id: str, facts: RebalanceFacts, now_ms: int) -> RebalanceRecord:
        """A rebalance as it looks now."""
        return at_once(self._snapshot_steps(group_id, facts, now_ms))[0]

    def open_text_steps(self, group_id: str, facts: RebalanceFacts, now_ms: int) -> Steps[bytes]:
        """Its JSON. The facts must not change meanwhile."""
        record, _ = yield from self._snapshot_steps(group_id, facts, now_ms)
        text = yield from text_steps(record)
        return text

    def _snapshot_steps(self, group_id: str, facts: RebalanceFacts, now_ms: int) -> Steps[Built]:
        return build_steps(
            group_id,
            facts,
            until_ms=now_ms,
            taken=self._taken.get(group_id, NONE_TAKEN),
            members_listed=MEMBERS_OF_RUNNING,
        )

    def forget(self, group_id: str) -> None:
        """Its next rebalance has nothing to do with those before."""
        self._taken.pop(group_id, None)

    let_go = staticmethod(let_go)
    text_steps = staticmethod(text_steps)
    parse_text = staticmethod(parse_text)

    @staticmethod
    def text_of(record: HistoryRecord) -> bytes:
        """The JSON of a record, at once."""
        return at_once(text_steps(record))

    @staticmethod
    def generation_of(record: HistoryRecord) -> int | None:
        """The one that a rebalance has led to."""
        is_over = isinstance(record, RebalanceRecord) and record.outcome in _WITH_GENERATION
        return record.generation if is_over else None

    @staticmethod
    def is_rebalance(record: HistoryRecord) -> bool:
        """False for one that was avoided."""
        return isinstance(record, RebalanceRecord)


def recovered_text(stored: GroupRecord, begun: Begun, sequence: int) -> bytes:
    """The record of a rebalance of which the group's log knows."""
    return Making.text_of(recovered(stored, begun, sequence))


def completed_text(text: bytes, stored: GroupRecord, begun: Begun) -> bytes | None:
    """The record of a rebalance that was written down while it ran, with how it ended; None if it
    is another one.
    """
    record = parse_text(text)
    if not isinstance(record, RebalanceRecord) or record.started_at_ms != begun.started_at_ms:
        return None
    return Making.text_of(completed(record, stored))


def unfinished(text: bytes) -> bytes | None:
    """The record of a rebalance that ran when the broker ended; None for other records.

    Raises ValueError for what is not a record.
    """
    record = parse_text(text)
    if not isinstance(record, RebalanceRecord):
        return None
    return Making.text_of(replace(record, outcome=RebalanceOutcome.UNFINISHED))
