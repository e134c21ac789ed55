"""The position of one consumer in each of its partitions.

A position is the offset of the next record that the user will get: everything below it has been
returned by a poll. Data fetched ahead of the position concerns only the fetcher.

A partition starts without a position and gets one in one of three ways: from its committed offset,
from a reset (to one of the ends of its log, or to a timestamp), or by a seek. Whenever the position
changes other than by reading on, it gets a new *fence*: data fetched under an older fence is void.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from kohort.client.core.errors import IllegalStateError, NoOffsetError
from kohort.client.core.offsets import (
    LATEST,
    UNKNOWN_EPOCH,
    OffsetAndMetadata,
    OffsetSpec,
    check_offset,
)
from kohort.client.core.partitions import TopicPartition


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition. Read by the fetcher, modified only by `Positions`."""

    fence: int
    placed: int = 0
    """`fence` when the position was last set by a seek, a reset or a committed offset."""
    floor: int | None = None
    """The lowest position since the partition was assigned; None before the first position."""
    position: int | None = None
    leader_epoch: int = UNKNOWN_EPOCH
    """The epoch of the last returned record, or of the committed offset."""
    reset: OffsetSpec | None = None
    """A reset whose offset has not been found yet; there is no position meanwhile."""
    is_paused: bool = False
    is_held: bool = False
    is_aside: bool = False
    """Whether it is not fetched, because all readers (`begin_reading`) want other partitions."""
    is_doubted: bool = False
    """Whether a new leader may lack records that were already read."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    learned_wall_ms: int | None = None
    """When a broker last reported `high_watermark` and `last_stable_offset`."""

    @property
    def is_readable(self) -> bool:
        """Whether the partition's records may be fetched and returned now."""
        is_kept_back = self.is_paused or self.is_held or self.is_aside or self.is_doubted
        return self.position is not None and not is_kept_back


class Positions:
    """The positions of one consumer. Methods raise an IllegalStateError for a partition that is not
    assigned; those that report responses ignore such a partition, since responses may be late.
    """

    def __init__(self, *, reads_committed: bool = False) -> None:
        """`reads_committed`: lag is measured to the last stable offset, not the high watermark."""
        self._reads_committed = reads_committed
        self._states: dict[TopicPartition, PartitionState] = {}
        self._fences = count(1)
        self._readers: list[frozenset[TopicPartition] | None] = []
        self._read_alone: frozenset[TopicPartition] | None = None
        """The union of all readers' partitions; None: all partitions."""
        self.version = 0
        """Incremented by changes that may invalidate fetched data, but not by returning records."""

    # Assignment.

    @property
    def assigned(self) -> Collection[TopicPartition]:
        return self._states.keys()

    def set_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment. Partitions that stay assigned keep their state, except that a
        `hold` ends.
        """
        self.version += 1
        states, self._states = self._states, {}
        for partition in partitions:
            state = states.get(partition)
            if state is None:
                state = PartitionState(next(self._fences))
            state.is_held = False
            self._states[partition] = state
        self._set_aside()

    def state(self, partition: TopicPartition) -> PartitionState:
        """The state of a partition, for the fetcher; not to be modified.

        Raises:
            IllegalStateError: it is not assigned.
        """
        state = self._states.get(partition)
        if state is None:
            raise IllegalStateError(
                f"{partition.topic}-{partition.partition} is not assigned to this consumer"
            )
        return state

    def find(self, partition: TopicPartition) -> PartitionState | None:
        """The `state` of a partition; None if it is not assigned."""
        return self._states.get(partition)

    def has_fence(self, partition: TopicPartition, fence: int) -> bool:
        """Whether a partition is assigned and data fetched under this fence is still valid."""
        state = self._states.get(partition)
        return state is not None and state.fence == fence

    def has_place(self, partition: TopicPartition, placed: int) -> bool:
        """Whether the partition is assigned and its number `placed` is unchanged: its position has
        only advanced by reading. A new fence after a leader change makes no difference.
        """
        state = self._states.get(partition)
        return state is not None and state.placed == placed

    # Initial positions.

    def missing_position(self) -> list[TopicPartition]:
        """The partitions without a position or a pending reset."""
        return [
            partition
            for partition, state in self._states.items()
            if state.position is None and state.reset is None
        ]

    def awaiting_reset(self) -> dict[TopicPartition, OffsetSpec]:
        """The partitions whose reset offset has to be looked up."""
        return {
            partition: state.reset
            for partition, state in self._states.items()
            if state.reset is not None
        }

    def committed_found(
        self,
        partition: TopicPartition,
        committed: OffsetAndMetadata | None,
        default_reset: OffsetSpec | None,
    ) -> None:
        """Set the position to the committed offset; if that is None, `default_reset` applies.

        Ignored if the position was set in another way meanwhile.

        Raises:
            NoOffsetError: there is no committed offset and no default.
        """
        state = self._states.get(partition)
        if state is None or state.position is not None or state.reset is not None:
            return
        if committed is not None:
            self._place(state, committed.offset, committed.leader_epoch)
        elif default_reset is not None:
            self._reset(state, default_reset)
        else:
            raise NoOffsetError(
                f"{partition.topic}-{partition.partition} has no committed offset, and"
                " auto_offset_reset is none: seek, commit an offset, or set it to earliest or"
                " latest",
                partition,
            )

    def reset_found(
        self,
        partition: TopicPartition,
        spec: OffsetSpec,
        offset: int | None,
        leader_epoch: int = UNKNOWN_EPOCH,
    ) -> None:
        """Set the position to the offset found for `spec`. None: no record has the timestamp in
        `spec` or a later one, so reset to the end.

        Ignored if the application has requested another position meanwhile.
        """
        state = self._states.get(partition)
        if state is None or state.reset != spec:
            return
        if offset is None:
            self._reset(state, LATEST)
        else:
            self._place(state, offset, leader_epoch)

    # User requests.

    def seek(
        self, partition: TopicPartition, offset: int, leader_epoch: int = UNKNOWN_EPOCH
    ) -> None:
        """Continue from an offset, whether or not it exists.

        Raises:
            TypeError, ValueError: the offset is not valid.
            IllegalStateError: the partition is not assigned.
        """
        check_offset(offset, leader_epoch)
        self._place(self.state(partition), offset, leader_epoch)

    def seek_to(self, partition: TopicPartition, spec: OffsetSpec) -> None:
        """Continue from an end of the log, or from a timestamp, once the offset is known."""
        self._reset(self.state(partition), spec)

    def forget(self, partition: TopicPartition) -> None:
        """Treat the partition as newly assigned: it needs its committed offset."""
        state = self.state(partition)
        self._place(state, None, UNKNOWN_EPOCH)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Neither fetch nor return records of the partitions. If one is unassigned, pause none."""
        self._set_paused(partitions, is_paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._set_paused(partitions, is_paused=False)

    def paused(self) -> set[TopicPartition]:
        return {partition for partition, state in self._states.items() if state.is_paused}

    def begin_reading(self, only: frozenset[TopicPartition] | None) -> bool:
        """Register a reader of these partitions, or of all if None, until `end_reading` is called
        with the same argument.

        While all readers want only certain partitions, the others are neither fetched nor returned.
        This is independent of pausing.

        Returns:
            whether this changes which partitions may be fetched.
        """
        self._readers.append(only)
        return self._readers_changed()

    def end_reading(self, only: frozenset[TopicPartition] | None) -> bool:
        """Remove a reader (`begin_reading`); return whether the fetchable partitions change."""
        self._readers.remove(only)
        return self._readers_changed()

    def _readers_changed(self) -> bool:
        wanted: frozenset[TopicPartition] | None = None
        if self._readers and None not in self._readers:
            wanted = frozenset().union(*(only for only in self._readers if only is not None))
        if wanted == self._read_alone:
            return False
        self.version += 1
        self._read_alone = wanted
        self._set_aside()
        return True

    def is_aside(self, partition: TopicPartition) -> bool:
        """Whether it is not fetched, as all readers (`begin_reading`) want other partitions."""
        return self._read_alone is not None and partition not in self._read_alone

    def hold(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Hold partitions that are about to be revoked: as with a pause, they are not read until
        the next `set_assigned`. Returns the partitions that were not held before.
        """
        self.version += 1
        held = []
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None and not state.is_held:
                state.is_held = True
                held.append(partition)
        return held

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `hold`: the partitions are not revoked after all."""
        self.version += 1
        for partition in partitions:
            if state := self._states.get(partition):
                state.is_held = False

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record to be returned; None while unknown."""
        return self.state(partition).position

    def are_known(self, partitions: Iterable[TopicPartition]) -> bool:
        states = map(self._states.get, partitions)
        return all(state is None or state.position is not None for state in states)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that a commit without arguments commits: all known positions."""
        return {
            partition: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for partition, state in self._states.items()
            if state.position is not None
        }

    # Results from brokers.

    def advance(self, partition: TopicPartition, offset: int, leader_epoch: int) -> None:
        """Advance the position: all existing records below `offset` were returned."""
        state = self._states[partition]
        assert state.position is not None
        assert offset >= state.position, "reading goes forward"
        state.position = offset
        state.leader_epoch = leader_epoch

    def learned(
        self,
        partition: TopicPartition,
        *,
        high_watermark: int,
        last_stable_offset: int,
        wall_ms: int | None = None,
    ) -> None:
        """Record the offsets that a fetch reported at `wall_ms`; negative ones are unknown."""
        state = self._states.get(partition)
        if state is None:
            return
        state.learned_wall_ms = wall_ms
        if high_watermark >= 0:
            state.high_watermark = high_watermark
        if last_stable_offset >= 0:
            state.last_stable_offset = last_stable_offset

    def doubt(self, partition: TopicPartition) -> None:
        """Require validation of the position by the leader, and discard fetched data."""
        state = self.state(partition)
        self._renew(state)
        state.is_doubted = True

    def believe(self, partition: TopicPartition) -> None:
        """Record that the position is valid."""
        self.version += 1
        self.state(partition).is_doubted = False

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The high watermark; None before the first fetch."""
        return self.state(partition).high_watermark

    def last_stable(self, partition: TopicPartition) -> int | None:
        """The last stable offset; None if unknown."""
        return self.state(partition).last_stable_offset

    def lag(self, partition: TopicPartition) -> int | None:
        """Offsets from the position to high watermark or last stable offset; None if unknown."""
        state = self.state(partition)
        end = state.last_stable_offset if self._reads_committed else state.high_watermark
        if end is None or state.position is None:
            return None
        return max(0, end - state.position)

    def _place(self, state: PartitionState, offset: int | None, leader_epoch: int) -> None:
        self._renew(state)
        state.placed = state.fence
        state.position, state.leader_epoch, state.reset = offset, leader_epoch, None
        if offset is not None:
            state.floor = offset if state.floor is None else min(state.floor, offset)

    def _reset(self, state: PartitionState, spec: OffsetSpec) -> None:
        self._renew(state)
        state.placed = state.fence
        state.position, state.leader_epoch, state.reset = None, UNKNOWN_EPOCH, spec

    def _renew(self, state: PartitionState) -> None:
        state.is_doubted = False
        state.fence = next(self._fences)
        self.version += 1

    def _set_aside(self) -> None:
        for partition, state in self._states.items():
            state.is_aside = self.is_aside(partition)

    def _set_paused(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        states = [self.state(partition) for partition in partitions]
        self.version += 1
        for state in states:
            state.is_paused = is_paused


class StoredOffsets:
    """Offsets that the application has stored for committing (enable.auto.offset.store=false).

    As in librdkafka, returned records are not committed before they are stored. A stored offset is
    valid for as long as the partition stays assigned.
    """

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
        """Return the stored offsets; drop those of partitions that were revoked meanwhile."""
        find = self._positions.find
        self._stored = {tp: its for tp, its in self._stored.items() if find(tp) is its[0]}
        return {partition: offset for partition, (_, offset) in self._stored.items()}
