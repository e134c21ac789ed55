"""The commit or abort of one transaction, from the decision to the last marker: the waiting
request, its response, and the missing markers.

EndTxn is answered when all markers are durable. If the markers are certain to be durable before any
later request is executed, or if a marker cannot be written, it is answered as soon as the decision
is durable.
"""

from typing import Final, NamedTuple

from kohort.broker.core.transaction.effects import EndCause, Mark, Reply, Superseded
from kohort.broker.core.transaction.records import TransactionRecord
from kohort.broker.core.transaction.requests import (
    EndResult,
    InitRequest,
    InitResult,
    Ticket,
    TopicPartition,
)
from kohort.protocol.errors import ErrorCode

SUPERSEDED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
"""Errors of a partition in which a marker of a later epoch has already ended the transaction."""

_SETTLED: Final = SUPERSEDED | {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Results after which a partition needs no further attempt: it has the marker or a later one, or
was deleted.
"""


class Fencing(NamedTuple):
    """An InitProducerId that waits until the open transaction has been aborted."""

    request: InitRequest
    ticket: Ticket


class TransactionEnd:
    """The end of one transaction. Exists only while a transaction ends, to save memory."""

    __slots__ = ("_awaited", "_fencing", "_missing", "_ticket", "cause")

    def __init__(
        self, cause: EndCause, ticket: Ticket | None = None, *, fencing: Fencing | None = None
    ) -> None:
        """`ticket`: the EndTxn to answer. `fencing`: the InitProducerId that waits for the end.
        With neither, the broker ends the transaction: after a timeout, or at startup.
        """
        self.cause = cause
        self._ticket = ticket
        self._fencing = fencing
        self._missing: dict[TopicPartition, None] | None = None
        """Partitions without a marker, in the order in which they were added; None before the
        decision is durable."""
        self._awaited = 0
        """Number of requested markers whose result is pending."""

    # Answers to the waiting request; None if no request waits.

    def answer_client(self, record: TransactionRecord) -> Reply | None:
        """Answer the EndTxn with success, because the decision is durable."""
        ticket, self._ticket = self._ticket, None
        if ticket is None:
            return None
        return Reply(ticket, EndResult(ErrorCode.NONE, *record.next_producer))

    def answer_fencing(self, error: ErrorCode = ErrorCode.CONCURRENT_TRANSACTIONS) -> Reply | None:
        """Answer the fencing InitProducerId with an error; by default, one on which the client
        retries.
        """
        fencing, self._fencing = self._fencing, None
        return None if fencing is None else Reply(fencing.ticket, InitResult(error))

    def answer_either(self, record: TransactionRecord) -> Reply | None:
        """Answer the waiting EndTxn or InitProducerId, because the decision is durable."""
        return self.answer_client(record) or self.answer_fencing()

    def answer_failure(self, error: ErrorCode) -> Reply | None:
        """Answer the waiting EndTxn or InitProducerId with an error: no decision was written."""
        ticket, self._ticket = self._ticket, None
        return self.answer_fencing(error) if ticket is None else Reply(ticket, EndResult(error))

    def take_fencing(self) -> Fencing | None:
        """Return the InitProducerId to execute after the end; None if none is waiting."""
        fencing, self._fencing = self._fencing, None
        return fencing

    # Markers.

    def decide(self, record: TransactionRecord) -> None:
        """Record that the decision is durable; all partitions need markers now."""
        self._missing, self._awaited = dict.fromkeys(record.partitions), 0

    @property
    def is_awaiting(self) -> bool:
        """Whether the result of a requested marker is pending."""
        return self._awaited > 0

    @property
    def unmarked(self) -> tuple[TopicPartition, ...] | None:
        """The partitions without a marker; None before the decision is durable."""
        return None if self._missing is None else tuple(self._missing)

    def mark(self, record: TransactionRecord, *, is_answered: bool) -> Mark | None:
        """Request the missing markers; None if no marker is missing."""
        assert self._missing is not None
        assert not self._awaited
        self._awaited = len(self._missing)
        return Mark(record, tuple(self._missing), is_answered) if self._missing else None

    def on_marked(
        self, record: TransactionRecord, partition: TopicPartition, error: ErrorCode
    ) -> Superseded | None:
        """Record the outcome of a marker; return an event if one of a later epoch preceded it."""
        assert self._missing is not None
        self._awaited -= 1
        if error in _SETTLED:
            self._missing.pop(partition, None)
        return Superseded(record, partition, error) if error in SUPERSEDED else None
