"""Writing the markers that end transactions in their partitions."""

from collections.abc import Callable
from typing import Protocol

from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred, Tasks
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.control import ControlType


class MarkerWriter(Protocol):
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
    ) -> Deferred[ErrorCode] | ErrorCode:
        """Append the marker; the result is set when it is durable and has been applied.

        Args:
            transaction_version: 2 if the marker's epoch is one above that of the batches, otherwise
            they are equal.

        Returns:
            UNKNOWN_TOPIC_OR_PARTITION: the partition does not exist. INVALID_PRODUCER_EPOCH or
            TRANSACTION_COORDINATOR_FENCED: a later marker was written. KAFKA_STORAGE_ERROR: the
            disk failed; retry later.
        """
        ...

    def may_wait(self, topic: str, partition: int) -> bool:
        """Whether a marker in this partition may have to wait for an fsync."""
        ...


class EndsOffsets(Protocol):
    """Stores the offsets that producers commit for groups in transactions."""

    def end_transaction(self, offsets_partition: int, producer_id: int, *, commit: bool) -> None:
        """Called when the marker is in this partition of __consumer_offsets."""
        ...


class PartitionMarkers:
    """A MarkerWriter for the broker's topics and groups."""

    def __init__(
        self,
        find: Callable[[str, int], Partition | None],
        groups: EndsOffsets,
        clock: Clock,
    ) -> None:
        """`find` returns a partition, opened if necessary; None if it does not exist."""
        self._find = find
        self._groups = groups
        self._clock = clock
        self._tasks: Tasks = set()

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
    ) -> Deferred[ErrorCode] | ErrorCode:
        try:
            opened = self._find(topic, partition)
            if opened is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            appended = opened.append_marker(
                producer_id,
                producer_epoch,
                result,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                wall_ms=self._clock.wall_ms(),
            )
        except KafkaError as error:
            return error.code
        is_commit = result is ControlType.COMMIT
        if opened.high_watermark >= appended.next_offset:
            self._end_offsets(topic, partition, producer_id, is_commit=is_commit)
            return ErrorCode.NONE
        return Deferred.from_coroutine(
            self._wait(opened, appended.next_offset, producer_id, is_commit=is_commit),
            self._tasks,
            name=f"marker in {opened!r}",
        )

    def may_wait(self, topic: str, partition: int) -> bool:
        opened = self._find(topic, partition)
        return opened is not None and opened.may_wait

    async def _wait(
        self, opened: Partition, next_offset: int, producer_id: int, *, is_commit: bool
    ) -> ErrorCode:
        try:
            await opened.wait_committed(next_offset)
        except KafkaError as error:
            return error.code
        self._end_offsets(opened.topic_name, opened.index, producer_id, is_commit=is_commit)
        return ErrorCode.NONE

    def _end_offsets(
        self, topic: str, partition: int, producer_id: int, *, is_commit: bool
    ) -> None:
        if topic == CONSUMER_OFFSETS:
            self._groups.end_transaction(partition, producer_id, commit=is_commit)
