"""Creates the records of the history. Imported at the first record, to speed up startup."""

import logging
from dataclasses import replace
from typing import Final

from kohort.broker.history.closing_queue import Waiting
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.peer_log import PeerLog
from kohort.groups.classic.stored_cause import StoredCause
from kohort.groups.history.build import build_avoided, build_steps, let_go
from kohort.groups.history.facts import AssignedFacts, AvoidedFacts, RebalanceFacts
from kohort.groups.history.json_form import kind_of, parse_text, text_steps
from kohort.groups.history.model import HistoryRecord, RebalanceOutcome, RebalanceRecord
from kohort.groups.history.moves import NONE_TAKEN, TakenPartitions
from kohort.groups.history.recovered import completed, recovered
from kohort.groups.history.sentence import sentence
from kohort.groups.history.share_record import build_assigned
from kohort.groups.records import Generation
from kohort.groups.steps import Steps, at_once

logger = logging.getLogger("kohort.broker.history")

LINES_PER_INTERVAL: Final = 100
"""Maximum log lines in ten seconds, because clients can make groups rebalance at any rate."""

GROUP_ID_CHARS: Final = 255

MEMBERS_OF_RUNNING: Final = 100
"""Maximum number of members listed for a rebalance in progress, whose record is created at each
query."""


class RecordMaker:
    """Creates the records of all groups; keeps the facts that each group's next record needs."""

    def __init__(self, clock: Clock) -> None:
        self._log = PeerLog(logger, clock, LINES_PER_INTERVAL)
        self._taken: dict[str, TakenPartitions] = {}
        """By group id: revoked partitions without a new owner yet; cooperative groups only."""

    def record_steps(self, waiting: Waiting) -> Steps[HistoryRecord]:
        """Create the record of a rebalance; to be called for each group in the order of its
        rebalances.
        """
        group_id, closed = waiting.group_id, waiting.closed
        assert closed is not None
        if isinstance(closed, AvoidedFacts):
            return build_avoided(group_id, closed)
        if isinstance(closed, AssignedFacts):
            return build_assigned(group_id, closed)
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
        """Create the record in one step, without yielding to other work."""
        return at_once(self.record_steps(waiting))

    def open_text_steps(self, group_id: str, facts: RebalanceFacts, now_ms: int) -> Steps[bytes]:
        """Return the JSON of a running rebalance. Between the steps, `facts` must not change."""
        record, _ = yield from build_steps(
            group_id,
            facts,
            until_ms=now_ms,
            taken=self._taken.get(group_id, NONE_TAKEN),
            members_listed=MEMBERS_OF_RUNNING,
        )
        text = yield from text_steps(record)
        return text

    def forget(self, group_id: str) -> None:
        """Forget a group: its next rebalance is unrelated to earlier rebalances."""
        self._taken.pop(group_id, None)

    def log(self, record: HistoryRecord) -> None:
        """Log why the group rebalanced, or avoided a rebalance."""
        group_id = record.group[:GROUP_ID_CHARS]
        self._log.inform("rebalance", "Group %s %s", group_id, sentence(record))

    let_go = staticmethod(let_go)
    text_steps = staticmethod(text_steps)

    @staticmethod
    def text_of(record: HistoryRecord) -> bytes:
        """Return the JSON of a record, created in one step."""
        return at_once(text_steps(record))

    @staticmethod
    def generation_of(record: HistoryRecord) -> int | None:
        """Return the generation that a rebalance resulted in; in a consumer group the epoch of the
        target assignment, which is stored even if the rebalance was superseded.
        """
        return record.generation if isinstance(record, RebalanceRecord) else None

    kind_of = staticmethod(kind_of)


def recovered_text(stored: Generation, begun: StoredCause, sequence: int) -> bytes:
    """Create a missing record from the generation and the cause in the group's log."""
    return RecordMaker.text_of(recovered(stored, begun, sequence))


def completed_text(text: bytes, stored: Generation, begun: StoredCause) -> bytes | None:
    """Complete the record `text` of a running rebalance from the generation in the group's log;
    return None if that is the generation of another rebalance.
    """
    record = parse_text(text)
    if (
        not isinstance(record, RebalanceRecord)
        or record.previous_generation != begun.previous_generation
        # A consumer group's record may start later: when the cause is durable.
        or record.started_at_ms < begun.started_at_ms
    ):
        return None
    return RecordMaker.text_of(completed(record, stored))


def unfinished(text: bytes) -> bytes | None:
    """Return the record of a rebalance that was running when the broker stopped, marked as
    unfinished; None for other records.

    Raises ValueError for an invalid record.
    """
    record = parse_text(text)
    if not isinstance(record, RebalanceRecord):
        return None
    return RecordMaker.text_of(replace(record, outcome=RebalanceOutcome.UNFINISHED))
