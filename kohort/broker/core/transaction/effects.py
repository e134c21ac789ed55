"""Effects: the actions that a transactional id requests from its caller, which does all I/O."""

from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from kohort.broker.core.transaction.records import DurableTransaction, TransactionRecord
from kohort.broker.core.transaction.requests import Ticket, TopicPartition
from kohort.protocol.errors import ErrorCode


class Append(NamedTuple):
    """Make the record durable, then call `on_appended` or `on_append_failed`. A transactional id
    requests its next Append only after that call.
    """

    record: DurableTransaction


class Mark(NamedTuple):
    """Append a marker to each of these partitions, and call `on_marked` for each."""

    record: TransactionRecord
    """A record in Prepare*, with the producer and the outcome."""
    partitions: tuple[TopicPartition, ...]
    is_answered: bool = False
    """Whether EndTxn has been answered already. If so, the markers must be written before any later
    request is executed."""


class Reply(NamedTuple):
    """Answer the request of `ticket` immediately. Each ticket gets exactly one Reply."""

    ticket: Ticket
    body: Any
    """An `InitResult` or an `ErrorCode`; see :mod:`kohort.broker.core.transaction.requests`."""


class EndCause(Enum):
    CLIENT = "client"
    TIMEOUT = "timeout"
    FENCE = "fence"
    """An InitProducerId of another instance of the producer."""
    START = "start"
    """The broker stopped during Prepare*, and completed the transaction at the next start."""


class Began(NamedTuple):
    """Event for observers: a transaction began."""


class Ended(NamedTuple):
    """Event for observers: all markers are written."""

    record: TransactionRecord
    cause: EndCause


class Superseded(NamedTuple):
    """Event for observers: a partition rejected the marker, because it has one of a higher epoch;
    the transaction has ended there.
    """

    record: TransactionRecord
    partition: TopicPartition
    error: ErrorCode


class Stuck(NamedTuple):
    """Some partitions could not accept their marker: call `retry` after a delay."""

    partitions: tuple[TopicPartition, ...]


Event: TypeAlias = Began | Ended | Superseded
Effect: TypeAlias = Append | Mark | Reply | Stuck | Event
