"""The filter of a list of transactional ids."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kohort.broker.core.transaction.patterns import Pattern
from kohort.broker.core.transaction.records import TransactionRecord
from kohort.broker.core.transaction.states import TransactionState

STATE_NAMES = frozenset(state.value for state in TransactionState)


class ListFilter(NamedTuple):
    """Conditions, all of which an id must meet."""

    states: Collection[str] = ()
    """Names of states, case-sensitive; an unknown name matches nothing."""
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    """Minimum time since the last transaction began, whether or not it has ended; ids without one
    match too. Negative: all."""
    pattern: Pattern | None = None
    """Must match the whole id."""

    def accepts(self, record: TransactionRecord, wall_ms: int) -> bool:
        """Whether the id is listed."""
        if self.states and record.state.value not in self.states:
            return False
        if self.producer_ids and record.producer_id not in self.producer_ids:
            return False
        if self.duration_ms >= 0 and wall_ms - record.start_ms <= self.duration_ms:
            return False
        return self.pattern is None or self.pattern.matches(record.transactional_id)
