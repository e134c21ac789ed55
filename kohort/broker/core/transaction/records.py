"""What a transactional id makes durable: one record that says all, or its end."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kohort.broker.core.transaction.requests import (
    EPOCH_MAX,
    EXHAUSTED_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ClientVersion,
    InitRequest,
    TopicPartition,
)
from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.records.control import ControlType

NEVER_MS = -1
"""Start of an id that has had no transaction since it was initialized."""


class TransactionRecord(NamedTuple):
    """All that is known of a transactional id. Times are wall time, milliseconds."""

    transactional_id: str
    producer_id: int
    previous_producer_id: int
    """The producer id before this very transition, so normally the same."""
    next_producer_id: int
    """Only in Prepare*, while an exhausted epoch is being replaced; else -1."""
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...]
    """Each once, in the order in which they were added."""
    last_update_ms: int
    start_ms: int = NEVER_MS
    client_version: ClientVersion = ClientVersion.V1

    @property
    def result(self) -> ControlType:
        """How the transaction ended; of a record in Prepare* or Complete*."""
        is_commit = self.state in _COMMITS
        assert is_commit or self.state in _ABORTS
        return ControlType.COMMIT if is_commit else ControlType.ABORT

    @property
    def next_producer(self) -> tuple[int, int]:
        """Id and epoch of the producer's next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


class TransactionTombstone(NamedTuple):
    """The id is forgotten."""

    transactional_id: str


DurableTransaction: TypeAlias = TransactionRecord | TransactionTombstone

_COMMITS = {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}
_ABORTS = {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT}


def last_epoch_of(record: TransactionRecord) -> int:
    """The epoch before this one, as far as a record tells it; -1 if it does not.

    A producer that holds it while its transaction was ended by version 5, a timeout or a fence may
    go on with the present one. Kafka forgets that when it restarts.
    """
    if record.client_version is not ClientVersion.V2 or record.producer_epoch == 0:
        return NO_PRODUCER_EPOCH
    is_ended = record.state in _COMMITS or record.state in _ABORTS
    return record.producer_epoch - 1 if is_ended else NO_PRODUCER_EPOCH


# What follows a record.


def created(
    transactional_id: str, producer_id: int, timeout_ms: int, wall_ms: int
) -> TransactionRecord:
    """The first record of an id."""
    return TransactionRecord(
        transactional_id,
        producer_id,
        previous_producer_id=producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=(),
        last_update_ms=wall_ms,
    )


def initialized(
    record: TransactionRecord, request: InitRequest, producer: tuple[int, int], wall_ms: int
) -> TransactionRecord:
    """InitProducerId is answered this id and epoch."""
    return record._replace(
        producer_id=producer[0],
        previous_producer_id=record.producer_id,
        producer_epoch=producer[1],
        timeout_ms=request.timeout_ms,
        state=TransactionState.EMPTY,
        partitions=(),
        last_update_ms=wall_ms,
        start_ms=NEVER_MS,
    )


def added(
    record: TransactionRecord,
    partitions: tuple[TopicPartition, ...],
    client_version: ClientVersion,
    wall_ms: int,
) -> TransactionRecord:
    """The transaction goes on with these partitions as well, or begins with them."""
    is_ongoing = record.state is TransactionState.ONGOING
    return record._replace(
        previous_producer_id=record.producer_id,
        state=TransactionState.ONGOING,
        partitions=tuple(dict.fromkeys(record.partitions + partitions)),
        last_update_ms=wall_ms,
        start_ms=record.start_ms if is_ongoing else wall_ms,
        client_version=client_version,
    )


def prepared(
    record: TransactionRecord,
    result: ControlType,
    client_version: ClientVersion,
    next_producer_id: int,
    wall_ms: int,
) -> TransactionRecord:
    """The outcome is decided; version 2 raises the epoch with it.

    Args:
        next_producer_id: takes over if the epoch is exhausted; else -1.
    """
    is_commit = result is ControlType.COMMIT
    is_raised = client_version is ClientVersion.V2
    is_ongoing = record.state is TransactionState.ONGOING
    return record._replace(
        previous_producer_id=record.producer_id,
        next_producer_id=next_producer_id,
        producer_epoch=min(record.producer_epoch + is_raised, EPOCH_MAX),
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        last_update_ms=wall_ms,
        start_ms=record.start_ms if is_ongoing else wall_ms,
        client_version=client_version,
    )


def completed(record: TransactionRecord, wall_ms: int) -> TransactionRecord:
    """All markers are written."""
    producer_id, producer_epoch = record.next_producer
    is_commit = record.state is TransactionState.PREPARE_COMMIT
    return record._replace(
        producer_id=producer_id,
        previous_producer_id=record.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=producer_epoch,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=(),
        last_update_ms=wall_ms,
    )


def is_exhausted(record: TransactionRecord) -> bool:
    """Whether no later epoch can be given to a client."""
    return record.producer_epoch >= EXHAUSTED_EPOCH
