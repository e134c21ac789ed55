"""Counts and logs the outcomes of transactions."""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from kohort.broker.core.transaction.effects import Began, EndCause, Ended, Event, Superseded
from kohort.broker.core.transaction.records import NEVER_MS
from kohort.protocol.records.control import ControlType

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class IdCounts:
    """Outcomes of one id's transactions since the broker started."""

    started: int = 0
    committed: int = 0
    aborted_by_client: int = 0
    aborted_by_timeout: int = 0
    aborted_by_fence: int = 0
    completed_at_start: int = 0
    """Transactions that were in Prepare* when the broker started, and were completed then."""
    reconciled: int = 0
    """Partitions reconciled with the coordinator after an unclean stop."""
    last_duration_ms: int = -1
    """Duration of the last completed transaction; -1 before the first one."""


class EventCounts(Counter[str]):
    """Events since the broker started, by name: ``started``; ``commit_by_`` and ``abort_by_`` with
    the cause; ``superseded_markers``; ``reconciled``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[str, IdCounts] = {}
        """Counts by transactional id, for ids that had a transaction."""
        self.on_ended: Callable[[ControlType, int], None] | None = None
        """Called when all markers of a transaction are written, with the milliseconds since it
        began."""

    def note(self, transactional_id: str, event: Event, wall_ms: int) -> None:
        """Count an event, and log it if it concerns operators."""
        match event:
            case Began():
                self["started"] += 1
                self._of(transactional_id).started += 1
            case Ended():
                self._note_end(transactional_id, event, wall_ms)
            case Superseded(record, partition, error):
                self["superseded_markers"] += 1
                logger.warning(
                    "%r, epoch %d: %s-%d already has a later marker (%s)",
                    transactional_id,
                    record.producer_epoch,
                    partition.topic,
                    partition.partition,
                    error.name,
                )
            case _:
                assert_never(event)

    def note_reconciled(self, transactional_id: str | None) -> None:
        """Count a partition reconciled with the coordinator; also by transactional id, if known."""
        self["reconciled"] += 1
        if transactional_id is not None:
            self._of(transactional_id).reconciled += 1

    def forget(self, transactional_id: str) -> None:
        self.by_id.pop(transactional_id, None)

    def _of(self, transactional_id: str) -> IdCounts:
        counts = self.by_id.get(transactional_id)
        if counts is None:
            counts = self.by_id[transactional_id] = IdCounts()
        return counts

    def _note_end(self, transactional_id: str, event: Ended, wall_ms: int) -> None:
        record, cause = event
        is_commit = record.result is ControlType.COMMIT
        self[f"{'commit' if is_commit else 'abort'}_by_{cause.value}"] += 1
        counts = self._of(transactional_id)
        if cause is EndCause.START:
            counts.completed_at_start += 1
        if is_commit:
            counts.committed += 1
        elif cause is EndCause.CLIENT:
            counts.aborted_by_client += 1
        elif cause is EndCause.FENCE:
            counts.aborted_by_fence += 1
        elif cause is EndCause.TIMEOUT:
            counts.aborted_by_timeout += 1
            logger.info(
                "The transaction of %r exceeded its timeout of %d ms and was aborted",
                transactional_id,
                record.timeout_ms,
            )
        if record.start_ms != NEVER_MS:
            counts.last_duration_ms = max(0, wall_ms - record.start_ms)
            if self.on_ended is not None:
                self.on_ended(record.result, counts.last_duration_ms)
