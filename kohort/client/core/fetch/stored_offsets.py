"""Offsets that the application has stored for committing (enable.auto.offset.store=false).

As in librdkafka, returned records are not committed before they are stored. A stored offset is
valid for as long as the partition stays assigned.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.core.fetch.positions import PartitionState, Positions
from kohort.client.core.offsets import OffsetAndMetadata, check_offset
from kohort.client.core.partitions import TopicPartition


class StoredOffsets:
    """The stored offsets of one consumer."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._stored: dict[TopicPartition, tuple[PartitionState, OffsetAndMetadata]] = {}

    def store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store offsets for the next commit; all or none.

        An offset below the partition's first position since it was assigned is ignored: its record
        belongs to an earlier assignment, and others may have committed later offsets meanwhile.

        Raises:
            TypeError, ValueError: the offset is not valid.
            IllegalStateError: a partition is not assigned.
        """
        states = {partition: self._positions.state(partition) for partition in offsets}
        for offset in offsets.values():
            check_offset(offset.offset, offset.leader_epoch)
        for partition, offset in offsets.items():
            state = states[partition]
            if state.floor is not None and offset.offset >= state.floor:
                self._stored[partition] = state, offset

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the stored offsets of partitions that have stayed assigned since then."""
        find = self._positions.find
        self._stored = {tp: its for tp, its in self._stored.items() if find(tp) is its[0]}
        return {partition: offset for partition, (_, offset) in self._stored.items()}
