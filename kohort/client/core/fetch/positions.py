"""Where one consumer stands in each of its partitions.

A position is the offset of the next record that the user will be given: everything below it has
been returned by a poll. What was fetched ahead of it is the fetcher's business alone.

A partition begins without a position and gets one in one of three ways: from its committed offset,
from a reset (to one of the ends of its log, or to a time), or by a seek. Whenever it gets one
other than by reading on, it gets a new *fence* as well: what was fetched under an older one is of
no use any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
    """One assigned partition. Read by the fetcher, changed by `Positions` only."""

    fence: int
    placed: int = 0
    """Which beginning it reads on from: another one with each seek, reset and committed offset."""
    floor: int | None = None
    """The lowest position that it has had since it was assigned; None before it had one."""
    position: int | None = None
    leader_epoch: int = UNKNOWN_EPOCH
    """The epoch of the last record that was returned, or as it was committed."""
    reset: OffsetSpec | None = None
    """Asked for, and not found yet; then there is no position."""
    is_paused: bool = False
    is_held: bool = False
    is_aside: bool = False
    """Others are being read alone."""
    is_doubted: bool = False
    """There is a new leader, which may not have what was read."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    learned_wall_ms: int | None = None
    """When the broker last told these three."""

    @property
    def is_readable(self) -> bool:
        """Whether records of it may be fetched and returned now."""
        is_kept_back = self.is_paused or self.is_held or self.is_aside or self.is_doubted
        return self.position is not None and not is_kept_back


class Positions:
    """The positions of one consumer. Asking about a partition that is not assigned is an
    IllegalStateError; an answer that comes for one is ignored, since it may have been late.
    """

    def __init__(self, *, reads_committed: bool = False) -> None:
        """`reads_committed`: lag is counted to the last stable offset, not the high watermark."""
        self._reads_committed = reads_committed
        self._states: dict[TopicPartition, PartitionState] = {}
        self._fences = count(1)
        self._readers: list[frozenset[TopicPartition] | None] = []
        self._read_alone: frozenset[TopicPartition] | None = None
        """All that the readers want; None: everything."""
        self.version = 0
        """Changes whenever it may matter to what was fetched: not by reading on."""

    # The assignment.

    @property
    def assigned(self) -> Collection[TopicPartition]:
        """All partitions, in the order in which they came."""
        return self._states.keys()

    def set_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """These and no others. Those that stay keep all but the hold, if they were held."""
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
        """For the fetcher; not to be changed.

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
        """Its `state`; None if it is not assigned."""
        return self._states.get(partition)

    def has_fence(self, partition: TopicPartition, fence: int) -> bool:
        """Whether it is assigned, and what was asked under this fence still means something."""
        state = self._states.get(partition)
        return state is not None and state.fence == fence

    def has_place(self, partition: TopicPartition, placed: int) -> bool:
        """Whether it is assigned, and has only been read on since its position was `placed`; other
        than a fence, that outlives doubts about a leader.
        """
        state = self._states.get(partition)
        return state is not None and state.placed == placed

    # How positions begin.

    def missing_position(self) -> list[TopicPartition]:
        """The partitions that want their committed offset: no position, and no reset asked for."""
        return [
            partition
            for partition, state in self._states.items()
            if state.position is None and state.reset is None
        ]

    def awaiting_reset(self) -> dict[TopicPartition, OffsetSpec]:
        """The partitions whose offset is to be looked up."""
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
        """What the group has committed, None for nothing: then `default_reset` decides.

        Nothing happens if the position has come from elsewhere meanwhile.

        Raises:
            NoOffsetError: nothing committed, and no default.
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
        """What the lookup of `spec` came to; None: no record is so late, so it is the end's turn.

        Nothing happens if something else was asked for meanwhile.
        """
        state = self._states.get(partition)
        if state is None or state.reset != spec:
            return
        if offset is None:
            self._reset(state, LATEST)
        else:
            self._place(state, offset, leader_epoch)

    # What the user asks for.

    def seek(
        self, partition: TopicPartition, offset: int, leader_epoch: int = UNKNOWN_EPOCH
    ) -> None:
        """Go on from there, whether or not there is anything.

        Raises:
            TypeError, ValueError: there can be no such offset.
            IllegalStateError: the partition is not assigned.
        """
        check_offset(offset, leader_epoch)
        self._place(self.state(partition), offset, leader_epoch)

    def seek_to(self, partition: TopicPartition, spec: OffsetSpec) -> None:
        """Go on from an end of the log, or from a time, once it is looked up."""
        self._reset(self.state(partition), spec)

    def forget(self, partition: TopicPartition) -> None:
        """Treat it as if it had just been assigned: it wants its committed offset."""
        state = self.state(partition)
        self._place(state, None, UNKNOWN_EPOCH)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Neither fetch nor return records of these. All or none are paused."""
        self._set_paused(partitions, is_paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        self._set_paused(partitions, is_paused=False)

    def paused(self) -> set[TopicPartition]:
        """By the user."""
        return {partition for partition, state in self._states.items() if state.is_paused}

    def begin_reading(self, only: frozenset[TopicPartition] | None) -> bool:
        """The application reads these, or all if None, until `end_reading` is called with the same.

        While all who read want but some partitions, the others are put aside: neither fetched nor
        returned. What is paused is another matter.

        Returns:
            whether that changes what may be fetched.
        """
        self._readers.append(only)
        return self._readers_changed()

    def end_reading(self, only: frozenset[TopicPartition] | None) -> bool:
        """Undo one `begin_reading`; whether that changes what may be fetched."""
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
        """Whether others are being read alone."""
        return self._read_alone is not None and partition not in self._read_alone

    def hold(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """They are about to be revoked: as pause, until the next `set_assigned`. Those that were
        not held before.
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
        """Undo `hold`: they are not revoked after all."""
        self.version += 1
        for partition in partitions:
            if state := self._states.get(partition):
                state.is_held = False

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record to be returned; None while it is not known."""
        return self.state(partition).position

    def are_known(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all of these that are assigned have a position."""
        states = map(self._states.get, partitions)
        return all(state is None or state.position is not None for state in states)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit without arguments commits: all positions that are known."""
        return {
            partition: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for partition, state in self._states.items()
            if state.position is not None
        }

    # What the broker says.

    def advance(self, partition: TopicPartition, offset: int, leader_epoch: int) -> None:
        """Records below `offset` were returned, or there are none to return."""
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
        log_start_offset: int,
        wall_ms: int | None = None,
    ) -> None:
        """The ends of the log as a fetch told them at `wall_ms`; negative ones are not known."""
        state = self._states.get(partition)
        if state is None:
            return
        state.learned_wall_ms = wall_ms
        if high_watermark >= 0:
            state.high_watermark = high_watermark
        if last_stable_offset >= 0:
            state.last_stable_offset = last_stable_offset
        if log_start_offset >= 0:
            state.log_start_offset = log_start_offset

    def doubt(self, partition: TopicPartition) -> None:
        """Its leader is to be asked about the position first; what was fetched for it is void."""
        state = self.state(partition)
        self._renew(state)
        state.is_doubted = True

    def believe(self, partition: TopicPartition) -> None:
        """The position is good."""
        self.version += 1
        self.state(partition).is_doubted = False

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Behind the last record that may be read; None before the first fetch."""
        return self.state(partition).high_watermark

    def last_stable(self, partition: TopicPartition) -> int | None:
        """Behind the last record whose transaction is decided; None if it is not known."""
        return self.state(partition).last_stable_offset

    def log_start(self, partition: TopicPartition) -> int | None:
        """The first offset there is; None if it is not known."""
        return self.state(partition).log_start_offset

    def lag(self, partition: TopicPartition) -> int | None:
        """Offsets between the position and the end; None while one of them is not known."""
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
