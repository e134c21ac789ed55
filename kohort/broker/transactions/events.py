"""What becomes of transactions, counted and told."""

from __future__ import annotations

import logging
from collections import Counter
from typing import assert_never

from kohort.broker.core.transaction.effects import Began, EndCause, Ended, Event, Superseded
from kohort.protocol.records.control import ControlType

logger = logging.getLogger(__name__)


class EventCounts(Counter[str]):
    """Events since the start, by name: ``started``; ``committed``, ``aborted`` and ``ended_by_``
    with the cause; ``superseded_markers``.
    """

    def note(self, transactional_id: str, event: Event) -> None:
        """Count it, and log what an operator may have to know."""
        match event:
            case Began():
                self["started"] += 1
            case Ended(record, cause):
                is_commit = record.result is ControlType.COMMIT
                self["committed" if is_commit else "aborted"] += 1
                self[f"ended_by_{cause.value}"] += 1
                if cause is EndCause.TIMEOUT:
                    logger.info(
                        "The transaction of %r took longer than its %d ms, and was aborted",
                        transactional_id,
                        record.timeout_ms,
                    )
            case Superseded(record, partition, error):
                self["superseded_markers"] += 1
                logger.warning(
                    "A later marker than that of %r, epoch %d, is in %s-%d already (%s)",
                    transactional_id,
                    record.producer_epoch,
                    partition.topic,
                    partition.partition,
                    error.name,
                )
            case _:
                assert_never(event)
