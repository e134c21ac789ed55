"""Records of `__share_group_state`: written as snapshots and updates, and replayed at start."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.groups.share.states import StateBatch
from kohort.groups.share.window import PendingWrite, Window


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """Return `group:topicId:partition`, whose hash determines the state partition."""
        raise NotImplementedError


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
    """The group's epoch at initialization, or when the start was altered."""
    leader_epoch: int
    start_offset: int
    """-1: not determined (written by Kafka only)."""
    delivery_complete_count: int
    create_ms: int
    """Wall time of the snapshot."""
    write_ms: int
    batches: Sequence[StateBatch] = field(default_factory=list)
    update_count: int = 0
    """Updates since the snapshot."""

    def clamped(self, log_start: int, log_end: int) -> "StoredState":
        """Return the state without offsets that the log does not hold; self if it holds all."""
        raise NotImplementedError


class StateReplay:
    """Restores states from records in log order."""

    states: dict[SharePartitionKey, StoredState]
    updates_without_snapshot: int

    def __init__(self) -> None:
        raise NotImplementedError

    def apply(self, key: bytes, value: bytes | None) -> SharePartitionKey | None:
        """Apply a record; return its key, None if the record is of an unknown type.

        Raises DecodeError.
        """
        raise NotImplementedError


class StateWriter:
    """Encodes the writes of a share-partition. Times are wall times."""

    def __init__(self, key: SharePartitionKey, state: StoredState) -> None:
        """Continue after a restored state, or after the one that `initialized` returned."""
        raise NotImplementedError

    def record(
        self, write: PendingWrite, window: Window, wall_ms: int, *, updates_per_snapshot: int
    ) -> StateRecord:
        """Encode a write: an update, or a snapshot in its place when it is time for one."""
        raise NotImplementedError

    def failed(self) -> None:
        """A record could not be appended: the next one is a snapshot."""
        raise NotImplementedError

    def cold_snapshot(
        self, window: Window, wall_ms: int, *, interval_ms: int
    ) -> StateRecord | None:
        """Return a snapshot if the last write is `interval_ms` ago and was not itself such a
        snapshot; it lets the log be pruned.
        """
        raise NotImplementedError

    def altered(self, start_offset: int, state_epoch: int, wall_ms: int) -> StateRecord:
        """Return the snapshot with another start and without batches; the window is to be replaced
        by `Window(settings, start_offset)`.
        """
        raise NotImplementedError


def initialized(
    key: SharePartitionKey, start_offset: int, state_epoch: int, wall_ms: int
) -> tuple[StateRecord, StoredState]:
    """Return the first snapshot of a share-partition."""
    raise NotImplementedError


def tombstone(key: SharePartitionKey) -> StateRecord:
    """Return the record that deletes a state."""
    raise NotImplementedError
