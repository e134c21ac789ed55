"""State transitions of a transactional id: each function returns the next record.

No I/O. A Transition also has the producer's previous epoch, while the producer may still use it.
"""

from collections.abc import Callable
from typing import NamedTuple

from kohort.broker.core.transaction.records import NEVER_MS, DurableTransaction, TransactionRecord
from kohort.broker.core.transaction.requests import (
    EPOCH_MAX,
    EXHAUSTED_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ClientVersion,
    InitRequest,
    TopicPartition,
)
from kohort.broker.core.transaction.rules import Action
from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.records.control import ControlType


class Transition(NamedTuple):
    """A record, and the in-memory state that applies once the record is durable."""

    record: DurableTransaction
    last_epoch: int = NO_PRODUCER_EPOCH


def created(transactional_id: str, producer_id: int, timeout_ms: int, wall_ms: int) -> Transition:
    return Transition(
        TransactionRecord(
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
    )


def initialized(
    record: TransactionRecord,
    last_epoch: int,
    action: Action,
    request: InitRequest,
    new_producer_id: Callable[[], int],
    wall_ms: int,
) -> Transition:
    """Execute an InitProducerId of an existing id. Raises `new_producer_id`'s errors."""
    producer = record.producer_id, record.producer_epoch + 1
    if action is Action.REPEAT:
        producer = record.producer_id, record.producer_epoch
    else:
        is_sent = request.producer_epoch != NO_PRODUCER_EPOCH
        last_epoch = record.producer_epoch if is_sent else NO_PRODUCER_EPOCH
        if action is Action.ROTATE:
            producer = new_producer_id(), 0
    return Transition(_reset(record, producer, request.timeout_ms, wall_ms), last_epoch)


def fenced(record: TransactionRecord, epoch: int, wall_ms: int) -> Transition:
    producer = record.producer_id, min(epoch, EXHAUSTED_EPOCH)
    return Transition(_reset(record, producer, record.timeout_ms, wall_ms))


def _reset(
    record: TransactionRecord, producer: tuple[int, int], timeout_ms: int, wall_ms: int
) -> TransactionRecord:
    return record._replace(
        producer_id=producer[0],
        previous_producer_id=record.producer_id,
        producer_epoch=producer[1],
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=(),
        last_update_ms=wall_ms,
        start_ms=NEVER_MS,
    )


def added(
    record: TransactionRecord,
    last_epoch: int,
    partitions: tuple[TopicPartition, ...],
    client_version: ClientVersion,
    wall_ms: int,
) -> Transition:
    is_ongoing = record.state is TransactionState.ONGOING
    return Transition(
        record._replace(
            previous_producer_id=record.producer_id,
            state=TransactionState.ONGOING,
            partitions=tuple(dict.fromkeys(record.partitions + partitions)),
            last_update_ms=wall_ms,
            start_ms=record.start_ms if is_ongoing else wall_ms,
            client_version=client_version,
        ),
        last_epoch,
    )


def prepared(
    record: TransactionRecord,
    last_epoch: int,
    result: ControlType,
    client_version: ClientVersion,
    new_producer_id: Callable[[], int],
    wall_ms: int,
) -> Transition:
    """Begin to commit or abort. Transactions V2 also raise the epoch, or replace the producer id if
    the epoch is exhausted.

    Raises the errors of `new_producer_id`.
    """
    is_commit = result is ControlType.COMMIT
    is_raised = client_version is ClientVersion.V2
    is_ongoing = record.state is TransactionState.ONGOING
    next_producer_id = NO_PRODUCER_ID
    if is_raised:
        last_epoch = record.producer_epoch
        if record.is_exhausted:
            next_producer_id = new_producer_id()
    return Transition(
        record._replace(
            previous_producer_id=record.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=min(record.producer_epoch + is_raised, EPOCH_MAX),
            state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            last_update_ms=wall_ms,
            start_ms=record.start_ms if is_ongoing else wall_ms,
            client_version=client_version,
        ),
        last_epoch,
    )


def completed(record: TransactionRecord, last_epoch: int, wall_ms: int) -> Transition:
    producer_id, producer_epoch = record.next_producer
    is_commit = record.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    return Transition(
        record._replace(
            producer_id=producer_id,
            previous_producer_id=record.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=producer_epoch,
            state=state,
            partitions=(),
            last_update_ms=wall_ms,
        ),
        last_epoch,
    )
