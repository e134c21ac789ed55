"""Positions that the application has declared done (enable.auto.offset.store=false).

As in librdkafka: what a poll has returned is not committed before it was stored. What is stored
counts for as long as the partition stays assigned.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.core.fetch.positions import PartitionState, Positions
from kohort.client.core.offsets import OffsetAndMetadata, check_offset
from kohort.client.core.partitions import TopicPartition


class StoredOffsets:
    """The stored positions of one consumer."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._stored: dict[TopicPartition, tuple[PartitionState, OffsetAndMetadata]] = {}

    def store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Have these committed from now on; all or none.

        One below the offset from which the partition is read, since it was assigned, is passed
        over: a record of an earlier assignment, behind which others have committed meanwhile.

        Raises:
            TypeError, ValueError: there can be no such offset.
            IllegalStateError: a partition is not assigned.
        """
        states = {partition: self._positions.state(partition) for partition in offsets}
        for found in offsets.values():
            check_offset(found.offset, found.leader_epoch)
        for partition, found in offsets.items():
            state = states[partition]
            if state.floor is not None and found.offset >= state.floor:
                self._stored[partition] = state, found

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is stored of partitions that were assigned all the while."""
        find = self._positions.find
        self._stored = {one: its for one, its in self._stored.items() if find(one) is its[0]}
        return {partition: found for partition, (_, found) in self._stored.items()}
