"""The durable state of a transactional id: one record with the complete state, or a tombstone."""

from typing import NamedTuple, TypeAlias

from kohort.broker.core.transaction.requests import (
    EXHAUSTED_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ClientVersion,
    TopicPartition,
)
from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.records.control import ControlType

NEVER_MS = -1
"""Start time of an id that has had no transaction since it was initialized."""


class TransactionRecord(NamedTuple):
    """The whole state of a transactional id. Times are wall time, in milliseconds."""

    transactional_id: str
    producer_id: int
    previous_producer_id: int
    """The producer id before this transition, normally the same one."""
    next_producer_id: int
    """The id that replaces one with an exhausted epoch; only in Prepare*, else -1."""
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...]
    """The partitions without duplicates, in the order in which they were added."""
    last_update_ms: int
    start_ms: int = NEVER_MS
    client_version: ClientVersion = ClientVersion.V1

    @property
    def result(self) -> ControlType:
        """The outcome of the transaction, for a record in Prepare* or Complete*."""
        is_commit = self.state in _COMMITS
        assert is_commit or self.state in _ABORTS
        return ControlType.COMMIT if is_commit else ControlType.ABORT

    @property
    def is_exhausted(self) -> bool:
        """Whether clients can get no later epoch."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def next_producer(self) -> tuple[int, int]:
        """Id and epoch of the producer's next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


class TransactionTombstone(NamedTuple):
    transactional_id: str


DurableTransaction: TypeAlias = TransactionRecord | TransactionTombstone

_COMMITS = {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}
_ABORTS = {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT}


def last_epoch_of(record: TransactionRecord) -> int:
    """Return the previous epoch, if the record implies it; otherwise -1.

    A producer that still has it after its transaction was ended by version 5, a timeout or a fence
    may continue with the current one. Kafka loses that when it restarts.
    """
    if record.client_version is not ClientVersion.V2 or record.producer_epoch == 0:
        return NO_PRODUCER_EPOCH
    is_ended = record.state in _COMMITS or record.state in _ABORTS
    return record.producer_epoch - 1 if is_ended else NO_PRODUCER_EPOCH
