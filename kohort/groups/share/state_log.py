"""Records of `__share_group_state`: written as snapshots and updates, and replayed at start.

The topic is not compacted, because an update contains only changes: a key's state is its latest
snapshot and the updates after it. Records before the oldest of these snapshots are deleted.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kohort.groups.share.states import RecordState, StateBatch, overlay
from kohort.groups.share.window import PendingWrite, Window
from kohort.protocol.codec import decode_versioned, encode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages import share_state_log as messages

SNAPSHOT: Final = 0
UPDATE: Final = 1

_VALUE_VERSION: Final = 0
_LEADER_EPOCH: Final = 0

_STATES: Final[Mapping[int, RecordState]] = {
    state: state
    for state in (
        RecordState.AVAILABLE,
        RecordState.ACKNOWLEDGED,
        RecordState.ARCHIVING,
        RecordState.ARCHIVED,
    )
}


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """Return `group:topicId:partition`, whose hash determines the state partition."""
        topic_id = urlsafe_b64encode(self.topic_id).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


class StateRecord(NamedTuple):
    key: bytes
    value: bytes | None
    """None: a tombstone."""
    is_snapshot: bool
    """Whether all earlier records of the key are obsolete; also true of tombstones."""


@dataclass(slots=True)
class StoredState:
    """The stored state of a share-partition."""

    snapshot_epoch: int
    state_epoch: int
    """The group epoch at which the partition was initialized or its start offset altered."""
    leader_epoch: int
    start_offset: int
    """-1: not determined yet; only Kafka writes this."""
    delivery_complete_count: int
    create_ms: int
    """Wall time of the snapshot; a cold snapshot copies `create_ms` of the snapshot before it."""
    write_ms: int
    batches: list[StateBatch] = field(default_factory=list)
    update_count: int = 0
    """Updates since the snapshot."""

    def clamped(self, log_start: int, log_end: int) -> "StoredState":
        """Return the state without offsets outside the log; self if there are none."""
        start = self.start_offset
        if start < 0:
            return self
        last = self.batches[-1].last_offset if self.batches else start - 1
        if log_start <= start and max(start, last + 1) <= log_end:
            return self
        start = min(max(start, log_start), log_end)
        batches = [
            batch._replace(
                first_offset=max(batch.first_offset, start),
                last_offset=min(batch.last_offset, log_end - 1),
            )
            for batch in self.batches
            if batch.last_offset >= start and batch.first_offset < log_end
        ]
        complete = sum(
            batch.last_offset - batch.first_offset + 1
            for batch in batches
            if batch.state not in (RecordState.AVAILABLE, RecordState.ARCHIVING)
        )
        return replace(self, start_offset=start, batches=batches, delivery_complete_count=complete)


class StateReplay:
    """Restores the states of share-partitions from records in log order."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, StoredState] = {}
        self.updates_without_snapshot = 0

    def apply(self, key: bytes, value: bytes | None) -> SharePartitionKey | None:
        """Apply a record; return its key, None if the record is of an unknown type.

        Raises DecodeError.
        """
        kind = int.from_bytes(key[:2], "big", signed=True)
        if len(key) >= 2 and kind not in {SNAPSHOT, UPDATE}:
            return None
        decoded, _ = decode_versioned(messages.ShareStateKey, key)
        partition = SharePartitionKey(decoded.group_id, decoded.topic_id, decoded.partition)
        if value is None:
            self.states.pop(partition, None)
        elif kind == SNAPSHOT:
            self.states[partition] = _snapshot(value)
        else:
            state = self.states.get(partition)
            if state is None:
                self.updates_without_snapshot += 1
                state = self.states[partition] = StoredState(-1, 0, _LEADER_EPOCH, -1, -1, 0, 0)
            _update(state, value)
        return partition


def _snapshot(value: bytes) -> StoredState:
    decoded, _ = decode_versioned(messages.ShareSnapshotValue, value)
    batches: list[StateBatch] = []
    overlay(batches, _decoded(decoded.state_batches), decoded.start_offset)
    return StoredState(
        snapshot_epoch=decoded.snapshot_epoch,
        state_epoch=decoded.state_epoch,
        leader_epoch=decoded.leader_epoch,
        start_offset=decoded.start_offset,
        delivery_complete_count=decoded.delivery_complete_count,
        create_ms=decoded.create_timestamp,
        write_ms=decoded.write_timestamp,
        batches=batches,
    )


def _update(state: StoredState, value: bytes) -> None:
    decoded, _ = decode_versioned(messages.ShareUpdateValue, value)
    changes = _decoded(decoded.state_batches)
    if decoded.start_offset >= 0:
        state.start_offset = decoded.start_offset
    state.snapshot_epoch = decoded.snapshot_epoch
    state.leader_epoch = decoded.leader_epoch
    state.delivery_complete_count = decoded.delivery_complete_count
    state.update_count += 1
    overlay(state.batches, changes, state.start_offset)


def _decoded(batches: Sequence[messages.StateBatch]) -> list[StateBatch]:
    result: list[StateBatch] = []
    for batch in batches:
        state = _STATES.get(batch.delivery_state)
        if state is None or not 0 <= batch.first_offset <= batch.last_offset:
            raise DecodeError("a share-partition's state has an impossible batch")
        count = batch.delivery_count
        result.append(StateBatch(batch.first_offset, batch.last_offset, state, count))
    return result


class StateWriter:
    """Encodes the writes of a share-partition. Times are wall times."""

    def __init__(self, key: SharePartitionKey, state: StoredState) -> None:
        """`state`: the stored state, as restored from the log or returned by `initialized`."""
        self._snapshot_key = _encoded_key(key, SNAPSHOT)
        self._update_key = _encoded_key(key, UPDATE)
        self._snapshot_epoch = state.snapshot_epoch
        self._state_epoch = state.state_epoch
        self._create_ms = state.create_ms
        self._last_write_ms = state.write_ms
        self._updates = state.update_count
        self._is_cold = state.create_ms != state.write_ms and not state.update_count
        self._needs_snapshot = False

    def record(
        self, write: PendingWrite, window: Window, wall_ms: int, *, updates_per_snapshot: int
    ) -> StateRecord:
        """Encode the last write of `window`, as an update; after enough updates, or a failed
        append, as a snapshot.
        """
        self._is_cold = False
        self._last_write_ms = wall_ms
        change = write.change
        if self._needs_snapshot or self._updates >= updates_per_snapshot:
            return self._snapshot(
                window.stored_batches(),
                change.start_offset,
                change.delivery_complete_count,
                wall_ms,
                wall_ms,
            )
        self._updates += 1
        value = messages.ShareUpdateValue(
            snapshot_epoch=self._snapshot_epoch,
            leader_epoch=_LEADER_EPOCH,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=_encoded(change.batches),
        )
        return StateRecord(self._update_key, encode_versioned(value, _VALUE_VERSION), False)

    @property
    def is_complete(self) -> bool:
        """Whether no append has failed since the last snapshot, so the log contains all changes."""
        return not self._needs_snapshot

    def stored(self, window: Window) -> StoredState:
        """Return the state in the log, to be kept while the window is unloaded."""
        return StoredState(
            snapshot_epoch=self._snapshot_epoch,
            state_epoch=self._state_epoch,
            leader_epoch=_LEADER_EPOCH,
            start_offset=window.start_offset,
            delivery_complete_count=window.delivery_complete_count,
            create_ms=self._create_ms,
            write_ms=self._last_write_ms,
            batches=window.stored_batches(),
            update_count=self._updates,
        )

    def failed(self) -> None:
        """Make the next record a snapshot, because a record could not be appended."""
        self._needs_snapshot = True

    def undo_alteration(self, state_epoch: int) -> None:
        """Restore the former state epoch and make the next record a snapshot, because the record
        that `altered` returned could not be appended.
        """
        self._state_epoch = state_epoch
        self._needs_snapshot = True

    def cold_snapshot(
        self, window: Window, wall_ms: int, *, interval_ms: int
    ) -> StateRecord | None:
        """Return a snapshot of an idle partition, so that earlier records can be deleted. None if
        the last write was less than `interval_ms` ago, or was a cold snapshot.
        """
        if self._is_cold or wall_ms - self._last_write_ms < interval_ms:
            return None
        self._is_cold = True
        self._last_write_ms = wall_ms
        return self._snapshot(
            window.stored_batches(),
            window.start_offset,
            window.delivery_complete_count,
            self._create_ms,
            wall_ms,
        )

    def altered(self, start_offset: int, state_epoch: int, wall_ms: int) -> StateRecord:
        """Return a snapshot with a new start offset and without batches; the caller replaces the
        window with `Window(settings, start_offset)`.
        """
        self._state_epoch = state_epoch
        self._is_cold = False
        self._last_write_ms = wall_ms
        return self._snapshot([], start_offset, 0, wall_ms, wall_ms)

    def _snapshot(
        self,
        batches: list[StateBatch],
        start_offset: int,
        complete: int,
        create_ms: int,
        write_ms: int,
    ) -> StateRecord:
        self._snapshot_epoch += 1
        self._updates = 0
        self._needs_snapshot = False
        self._create_ms = create_ms
        state = StoredState(
            snapshot_epoch=self._snapshot_epoch,
            state_epoch=self._state_epoch,
            leader_epoch=_LEADER_EPOCH,
            start_offset=start_offset,
            delivery_complete_count=complete,
            create_ms=create_ms,
            write_ms=write_ms,
            batches=batches,
        )
        return _snapshot_record(self._snapshot_key, state)


def initialized(
    key: SharePartitionKey, start_offset: int, state_epoch: int, wall_ms: int
) -> tuple[StateRecord, StoredState]:
    """Return the first snapshot of a share-partition, and the state in it."""
    state = StoredState(
        snapshot_epoch=0,
        state_epoch=state_epoch,
        leader_epoch=_LEADER_EPOCH,
        start_offset=start_offset,
        delivery_complete_count=-1 if start_offset < 0 else 0,
        create_ms=wall_ms,
        write_ms=wall_ms,
    )
    return _snapshot_record(_encoded_key(key, SNAPSHOT), state), state


def tombstone(key: SharePartitionKey) -> StateRecord:
    """Return the record that deletes a state."""
    return StateRecord(_encoded_key(key, SNAPSHOT), None, True)


def _encoded_key(key: SharePartitionKey, kind: int) -> bytes:
    group_id, topic_id, partition = key
    decoded = messages.ShareStateKey(group_id=group_id, topic_id=topic_id, partition=partition)
    return encode_versioned(decoded, kind)


def _snapshot_record(key: bytes, state: StoredState) -> StateRecord:
    value = messages.ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_ms,
        write_timestamp=state.write_ms,
        state_batches=_encoded(state.batches),
    )
    return StateRecord(key, encode_versioned(value, _VALUE_VERSION), True)


def _encoded(batches: Sequence[StateBatch]) -> list[messages.StateBatch]:
    return [
        messages.StateBatch(
            first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
        )
        for first, last, state, count in batches
    ]
