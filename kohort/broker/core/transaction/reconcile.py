"""Repair after a power failure: decides how to end or continue an open transaction of a partition.

Each log may have lost its end, so that the coordinator's log and a partition's disagree. Kafka
leaves that to replicas. A single broker knows both sides; if the outcome of a transaction is
unknown, the transaction is aborted in that partition, because records that may not have been
committed must never become visible.
"""

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
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Leave(NamedTuple):
    """Do nothing: coordinator and partition agree, or will once the markers are written."""


class AddLost(NamedTuple):
    """The record that added the partition was lost: add the partition again."""


class WriteMarker(NamedTuple):
    """End the transaction in this partition."""

    result: ControlType
    producer_epoch: int
    client_version: ClientVersion
    """Selects the rule by which the marker is checked."""
    is_guess: bool
    """Whether the outcome is unknown, so that the transaction may end differently in other
    partitions."""


Repair: TypeAlias = Leave | AddLost | WriteMarker

_COMPLETE = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}


def decide_repair(record: TransactionRecord | None, opened: OpenInPartition) -> Repair:
    """Decide the repair of a transaction that is open in a partition after an unclean stop.

    Args:
        record: the record of the transactional id that has the producer id, or had it until its
            epoch was exhausted; None if no transactional id does.
    """
    epoch = opened.producer_epoch
    abort = WriteMarker(ControlType.ABORT, epoch, ClientVersion.V1, is_guess=True)
    if record is None:
        return abort
    if record.state is TransactionState.ONGOING and record.producer_epoch == epoch:
        is_own = record.producer_id == opened.producer_id
        if not is_own:
            return abort
        return Leave() if opened.place in record.partitions else AddLost()
    if record.state.is_prepared:
        is_decided = opened.place in record.partitions and _is_prepared_for(record, opened)
        return Leave() if is_decided else abort
    if record.state in _COMPLETE and record.client_version is ClientVersion.V2:
        marker_epoch = _marker_epoch(record, opened)
        if marker_epoch == epoch + 1:
            return WriteMarker(record.result, marker_epoch, ClientVersion.V2, is_guess=False)
    return abort


def _is_prepared_for(record: TransactionRecord, opened: OpenInPartition) -> bool:
    """Whether `opened` has the producer id and epoch of the prepared transaction. Otherwise it is
    an earlier transaction whose marker was lost, or a later one that the coordinator lost.
    """
    raised_by = int(record.client_version is ClientVersion.V2)
    own = record.producer_id, record.producer_epoch - raised_by
    return own == (opened.producer_id, opened.producer_epoch)


def _marker_epoch(record: TransactionRecord, opened: OpenInPartition) -> int | None:
    """Return the epoch in the markers of the transaction that `record` completed last; None if it
    was not a transaction of the producer of `opened`.
    """
    if opened.producer_id == record.producer_id:
        return record.producer_epoch
    is_replaced = opened.producer_id == record.previous_producer_id and record.producer_epoch == 0
    return EPOCH_MAX if is_replaced and opened.producer_epoch == EXHAUSTED_EPOCH else None
