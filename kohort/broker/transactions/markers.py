"""Writing the markers that end transactions in their partitions."""

from __future__ import annotations

from typing import Protocol

from kohort.broker.runtime.answer import Later
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.control import ControlType


class MarkerWriter(Protocol):
    """Writes a marker into a partition of this broker."""

    def write(
        self,
        topic: str,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        result: ControlType,
        *,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Later[ErrorCode] | ErrorCode:
        """Append the marker; told when it is durable, and what depends on it is done.

        Args:
            transaction_version: 2 if the epoch is the one after the batches', else it is theirs.

        Returns:
            UNKNOWN_TOPIC_OR_PARTITION: there is none. INVALID_PRODUCER_EPOCH or
            TRANSACTION_COORDINATOR_FENCED: somebody has written a later one. KAFKA_STORAGE_ERROR:
            not now.
        """
        ...
