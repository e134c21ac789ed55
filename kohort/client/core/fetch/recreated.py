"""Detects topics that were deleted and recreated, where the same offsets are other records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.client.core.errors import ConsumerError, OffsetOutOfRangeError
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.offsets import OffsetSpec
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import TopicInfo
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID


class TopicIds:
    """The ids of topics at the last check."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def changed(
        self, infos: Mapping[str, TopicInfo], partitions: Iterable[TopicPartition]
    ) -> list[str]:
        """Return the topics of these partitions whose id has changed since the last call."""
        changed = []
        topics = {partition.topic for partition in partitions}
        for gone in self._known.keys() - topics:
            del self._known[gone]
        for topic in topics:
            info = infos.get(topic)
            if info is None or info.topic_id == ZERO_UUID:
                continue
            if self._known.setdefault(topic, info.topic_id) != info.topic_id:
                self._known[topic] = info.topic_id
                changed.append(topic)
        return changed


def reset_recreated(
    positions: Positions, topic: str, spec: OffsetSpec | None
) -> dict[TopicPartition, ConsumerError]:
    """Reset the positions in a recreated topic; without a reset policy, return errors."""
    errors: dict[TopicPartition, ConsumerError] = {}
    for partition in positions.assigned:
        position = positions.position(partition)
        if partition.topic != topic or position is None:
            continue
        if spec is not None:
            positions.seek_to(partition, spec)
        else:
            positions.seek(partition, position)
            errors[partition] = OffsetOutOfRangeError(
                f"{topic} was deleted and recreated, so offset {position} is another record, and"
                " auto_offset_reset is none: seek to an offset",
                partition,
                position,
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
    return errors
