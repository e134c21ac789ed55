"""Detects that records which a consumer has read were replaced at their offsets. No I/O.

A leader that takes over without all records of its predecessor continues from its own log end, and
reuses the offsets of the missing records. A consumer that has read further would continue in the
middle of the new records and miss the first of them (KIP-320). So when a partition has a newer
leader than the one that the last record was read from, the new leader is asked, before anything is
read, where the older leader's records end.

A topic that was deleted and recreated has other records at all offsets; its new id shows this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from kohort.client.core.errors import ConsumerError, LogTruncatedError, OffsetOutOfRangeError
from kohort.client.core.fetch.positions import PartitionState, Positions
from kohort.client.core.offsets import OffsetAndMetadata, OffsetSpec
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader, TopicInfo
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID

LeaderOf: TypeAlias = Callable[[TopicPartition], Leader | None]


class EpochQuestion(NamedTuple):
    """Asks the leader up to which offset it has records of `leader_epoch` or older."""

    fence: int
    offset: int
    leader_epoch: int
    leader: Leader


class EpochEnd(NamedTuple):
    """The leader's newest epoch up to the requested epoch, and its end offset; -1 if unknown."""

    leader_epoch: int
    offset: int


class LeaderChecks:
    """Tracks the positions of one consumer that need validation after a leader change."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._seen: dict[TopicPartition, tuple[int, Leader]] = {}
        """Per partition: `PartitionState.fence` and the leader, both at the last check."""

    def look(self, leader_of: LeaderOf) -> bool:
        """Check for changed leaders or positions. Returns whether a position is now in doubt.

        If so, data fetched from that position on must be dropped.
        """
        seen: dict[TopicPartition, tuple[int, Leader]] = {}
        has_doubts = False
        for partition in list(self._positions.assigned):
            state, leader = self._positions.state(partition), leader_of(partition)
            if state.position is None or leader is None:
                continue
            if self._seen.get(partition) != (state.fence, leader):
                if _is_doubtful(state, leader):
                    self._positions.doubt(partition)
                    has_doubts = True
                elif state.is_doubted:
                    self._positions.believe(partition)
            seen[partition] = (state.fence, leader)
        self._seen = seen
        return has_doubts

    def doubts(self) -> Mapping[TopicPartition, EpochQuestion]:
        doubts = {}
        for partition, (fence, leader) in self._seen.items():
            state = self._positions.find(partition)
            if state is not None and state.is_doubted and state.fence == fence:
                assert state.position is not None
                doubts[partition] = EpochQuestion(fence, state.position, state.leader_epoch, leader)
        return doubts

    def believed(self, partition: TopicPartition, doubt: EpochQuestion) -> None:
        """Accept the position unvalidated: brokers before Kafka 2.3 cannot validate it."""
        if self._positions.has_fence(partition, doubt.fence):
            self._positions.believe(partition)

    def answered(
        self,
        partition: TopicPartition,
        doubt: EpochQuestion,
        end: EpochEnd,
        default_reset: OffsetSpec | None,
    ) -> LogTruncatedError | None:
        """Process the leader's answer. Ignored if the position has moved meanwhile.

        If the log was truncated before the position, the position goes back to that point, as in
        Java; if that point is unknown, `default_reset` applies. Without a `default_reset`, the
        position stays in doubt, and the error to raise is returned.
        """
        if not self._positions.has_fence(partition, doubt.fence):
            return None
        is_known = end.offset >= 0 and end.leader_epoch >= 0
        if is_known and end.offset >= doubt.offset:
            self._positions.believe(partition)
        elif default_reset is None:
            parted = OffsetAndMetadata(end.offset, "", end.leader_epoch) if is_known else None
            return LogTruncatedError(partition, doubt.offset, parted)
        elif is_known:
            # `end.leader_epoch` is older than the leader's, so the position is validated again.
            self._positions.seek(partition, end.offset, end.leader_epoch)
        else:
            self._positions.seek_to(partition, default_reset)
        return None


def _is_doubtful(state: PartitionState, leader: Leader) -> bool:
    """Whether the leader's epoch is newer than that of the last record. An older leader epoch comes
    from outdated metadata. A leader of the same epoch has the records, since it returned them.
    """
    return 0 <= state.leader_epoch < leader.epoch


class TopicIds:
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
