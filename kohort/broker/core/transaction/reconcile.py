"""After a loss of power: what an open transaction in a partition means, and what ends it.

Each log may have lost its own end, so that the coordinator's and a partition's disagree. Kafka
leaves that to replicas. One broker knows both sides; where it cannot tell what became of a
transaction it aborts it there, because what may be undecided is never shown.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kohort.broker.core.transaction.records import TransactionRecord
from kohort.broker.core.transaction.requests import (
    EPOCH_MAX,
    EXHAUSTED_EPOCH,
    ClientVersion,
    TopicPartition,
)
from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.records.control import ControlType


class OpenInPartition(NamedTuple):
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int

    @property
    def place(self) -> TopicPartition:
        """Where it is open."""
        return TopicPartition(self.topic, self.partition)


class Leave(NamedTuple):
    """Both sides agree, or the completion of what was decided will make them."""


class AddLost(NamedTuple):
    """The record that added the partition was lost: add it once more."""


class WriteMarker(NamedTuple):
    """End the transaction in this partition."""

    result: ControlType
    producer_epoch: int
    client_version: ClientVersion
    """Says which rule the marker is judged by."""
    is_guess: bool
    """Whether the outcome is not known, so that the transaction may be torn."""


Repair: TypeAlias = Leave | AddLost | WriteMarker

_COMPLETE = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}


def judge_open(record: TransactionRecord | None, found: OpenInPartition) -> Repair:
    """What to do about a transaction that is open in a partition after an unclean stop.

    Args:
        record: what is known of the id whose producer this is, or was until its epoch was
            exhausted; None if there is none.
    """
    epoch = found.producer_epoch
    abort = WriteMarker(ControlType.ABORT, epoch, ClientVersion.V1, is_guess=True)
    if record is None:
        return abort
    if record.state is TransactionState.ONGOING and record.producer_epoch == epoch:
        is_own = record.producer_id == found.producer_id
        if not is_own:
            return abort
        return Leave() if found.place in record.partitions else AddLost()
    if record.state.is_prepared:
        is_decided = found.place in record.partitions and _is_prepared_for(record, found)
        return Leave() if is_decided else abort
    if record.state in _COMPLETE and record.client_version is ClientVersion.V2:
        marker_epoch = _marker_epoch(record, found)
        if marker_epoch == epoch + 1:
            return WriteMarker(record.result, marker_epoch, ClientVersion.V2, is_guess=False)
    return abort


def _is_prepared_for(record: TransactionRecord, found: OpenInPartition) -> bool:
    """Whether what is open is of the transaction that was decided, as far as epochs tell: not of
    one before it, whose marker was lost, nor of one after it, which the coordinator has lost.
    """
    raised_by = int(record.client_version is ClientVersion.V2)
    own = record.producer_id, record.producer_epoch - raised_by
    return own == (found.producer_id, found.producer_epoch)


def _marker_epoch(record: TransactionRecord, found: OpenInPartition) -> int | None:
    """The epoch in the markers of the last transaction of an id that is complete; None if the
    producer had another id by then.
    """
    if found.producer_id == record.producer_id:
        return record.producer_epoch
    is_replaced = found.producer_id == record.previous_producer_id and record.producer_epoch == 0
    return EPOCH_MAX if is_replaced and found.producer_epoch == EXHAUSTED_EPOCH else None
