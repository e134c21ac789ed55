"""Decides on transaction requests, with functions of the stored state of a transactional id.

The checks are in Kafka's order, which clients can see: if two fail, the first error is returned.
"""

from enum import Enum, auto
from typing import Final

from kohort.broker.core.transaction.records import TransactionRecord
from kohort.broker.core.transaction.requests import (
    EXHAUSTED_EPOCH,
    ID_BYTES_MAX,
    NEVER_TIMES_OUT_MS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ClientVersion,
    EndRequest,
    InitRequest,
    TransactionConfig,
)
from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.control import ControlType

LATE_MARGIN_MS: Final = 300_000
"""Time that Kafka adds to transaction.max.timeout.ms before it calls a transaction late."""

_S = TransactionState


class Action(Enum):
    """The action for a request that is not refused."""

    CREATE = auto()
    """InitProducerId: assign a producer id to a new transactional id."""
    FENCE = auto()
    """InitProducerId: abort the transaction of the previous instance."""
    ROTATE = auto()
    """InitProducerId: assign a new producer id, because the epoch is exhausted."""
    BUMP = auto()
    """InitProducerId: raise the producer epoch."""
    REPEAT = auto()
    """InitProducerId or EndTxn: a retry of a request that was executed."""
    PREPARE = auto()
    """EndTxn: write the decision, PREPARE_COMMIT or PREPARE_ABORT."""
    NOTHING_TO_WRITE = auto()
    """Adding partitions: all of them are in the transaction already."""
    ADD = auto()
    """Adding partitions: write a record with the new ones."""


_COMPLETE: Final = {
    ControlType.COMMIT: _S.COMPLETE_COMMIT,
    ControlType.ABORT: _S.COMPLETE_ABORT,
}


def check_init(
    transactional_id: str | None, request: InitRequest, config: TransactionConfig
) -> ErrorCode:
    """Check an InitProducerId, independently of the state of its id."""
    has_id = request.producer_id != NO_PRODUCER_ID
    if has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if transactional_id is None:
        return ErrorCode.NONE
    if not transactional_id or len(transactional_id.encode()) > ID_BYTES_MAX:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.timeout_ms <= config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def decide_init(
    record: TransactionRecord | None, last_epoch: int, request: InitRequest, *, is_pending: bool
) -> Action | ErrorCode:
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if record is None:
        return Action.CREATE
    sent_epoch = request.producer_epoch
    is_own = request.producer_id == record.producer_id
    was_own = request.producer_id == record.previous_producer_id and sent_epoch >= EXHAUSTED_EPOCH
    if request.producer_id != NO_PRODUCER_ID and not (is_own or was_own):
        return ErrorCode.PRODUCER_FENCED
    if record.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return (
        Action.FENCE
        if record.state is _S.ONGOING
        else _decide_next_epoch(record, last_epoch, sent_epoch)
    )


def _decide_next_epoch(
    record: TransactionRecord, last_epoch: int, sent_epoch: int
) -> Action | ErrorCode:
    """Decide how to handle an InitProducerId without an open transaction."""
    if sent_epoch in {NO_PRODUCER_EPOCH, record.producer_epoch}:
        return Action.ROTATE if record.is_exhausted else Action.BUMP
    return Action.REPEAT if sent_epoch == last_epoch else ErrorCode.PRODUCER_FENCED


def check_producer(
    record: TransactionRecord | None, producer_id: int, producer_epoch: int
) -> ErrorCode:
    if record is None or record.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if record.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def decide_add(
    record: TransactionRecord | None,
    producer_id: int,
    producer_epoch: int,
    *,
    is_pending: bool,
    are_all_in: bool,
) -> Action | ErrorCode:
    """Decide how to handle additions by AddPartitionsToTxn, AddOffsetsToTxn and other requests."""
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = check_producer(record, producer_id, producer_epoch)
    if error or record is None:
        return error
    if record.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if record.state is _S.ONGOING and are_all_in:
        return Action.NOTHING_TO_WRITE
    return Action.ADD


def check_batch(
    record: TransactionRecord | None,
    producer_id: int,
    producer_epoch: int,
    *,
    adds: bool,
    are_in: bool,
    is_changing: bool,
) -> ErrorCode:
    """Check whether batches of a transaction may be appended to certain partitions.

    Args:
        adds: whether the caller adds missing partitions before it appends.
        are_in: whether the transaction has all of the partitions.
        is_changing: whether the record being written may add some of the partitions.
    """
    if adds and is_changing:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = check_producer(record, producer_id, producer_epoch)
    if error or record is None:
        return error
    if is_changing or record.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE if adds or are_in else ErrorCode.TRANSACTION_ABORTABLE


def decide_end(
    record: TransactionRecord | None, request: EndRequest, *, is_pending: bool
) -> Action | ErrorCode:
    raises_epoch = request.client_version is ClientVersion.V2
    is_retry = raises_epoch and record is not None and _is_retry_of_end(record, request)
    error = ErrorCode.NONE
    if not is_retry:
        error = check_producer(record, request.producer_id, request.producer_epoch)
    is_ending = is_pending or (record is not None and record.state.is_prepared)
    if is_ending and (raises_epoch or not error):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if error or record is None:
        return error
    if is_retry and record.state not in _COMPLETE.values():
        return ErrorCode.PRODUCER_FENCED
    if record.state is _S.ONGOING:
        return Action.PREPARE
    if raises_epoch and not is_retry:
        # An abort raises the epoch even without a transaction, because the producer may not know
        # whether its additions were accepted.
        is_abort = request.result is ControlType.ABORT
        return Action.PREPARE if is_abort else ErrorCode.INVALID_TXN_STATE
    is_repeated = record.state is _COMPLETE[request.result]
    return Action.REPEAT if is_repeated else ErrorCode.INVALID_TXN_STATE


def _is_retry_of_end(record: TransactionRecord, request: EndRequest) -> bool:
    """Whether the request has the producer id and epoch that the last EndTxn has replaced."""
    if request.producer_id == record.producer_id:
        return request.producer_epoch == record.producer_epoch - 1
    return (
        request.producer_id == record.previous_producer_id
        and request.producer_epoch == EXHAUSTED_EPOCH
        and record.producer_epoch == 0
    )


def is_overdue(record: TransactionRecord, wall_ms: int) -> bool:
    """Whether a transaction has been open for longer than its producer allowed."""
    deadline = deadline_ms(record)
    return deadline is not None and deadline <= wall_ms


def deadline_ms(record: TransactionRecord) -> int | None:
    """The wall time at which the transaction is overdue; None without transaction or timeout."""
    if record.state is not _S.ONGOING or record.timeout_ms == NEVER_TIMES_OUT_MS:
        return None
    return record.start_ms + record.timeout_ms + 1


def late_before_ms(config: TransactionConfig, wall_ms: int) -> int:
    """Return the minimum time of an open transaction's last batch: if the batch is older, the
    transaction is late, because a coordinator that knew of it would have ended it.
    """
    return wall_ms - config.max_timeout_ms - LATE_MARGIN_MS


def is_expired(record: TransactionRecord, config: TransactionConfig, wall_ms: int) -> bool:
    """Whether the id was unused for so long that it expires."""
    return record.state.is_idle and record.last_update_ms <= wall_ms - config.id_expiration_ms
