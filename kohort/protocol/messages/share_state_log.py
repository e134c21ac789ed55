"""Records of __share_group_state: the delivery state of each share-partition (KIP-932).

Key and value are each preceded by an int16: the type of the record, 0 for a snapshot and 1 for an
update, and version 0. A null value of a snapshot deletes the state.
"""

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import Int8, Int16, Int32, Int64, String, Uuid


@record(versions="0-1", flexible="none")
class ShareStateKey:
    """Key of a snapshot (type 0) or an update (type 1) of the state of a share-partition."""

    group_id: String
    topic_id: Uuid
    partition: Int32


@struct
class StateBatch:
    """Consecutive offsets in the same state."""

    first_offset: Int64
    last_offset: Int64
    """Inclusive."""
    delivery_state: Int8
    """0 Available, 2 Acknowledged, 4 Archived."""
    delivery_count: Int16


@record(versions="0", flexible="0+")
class ShareSnapshotValue:
    """The whole state of a share-partition."""

    snapshot_epoch: Int32
    """Number of the snapshot, from 0."""
    state_epoch: Int32
    """The group's epoch when the state was initialized, or its start offset altered."""
    leader_epoch: Int32
    start_offset: Int64
    """-1 if it is not determined yet."""
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    """Number of offsets from the start offset on whose delivery is complete; -1 if unknown."""
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


@record(versions="0", flexible="0+")
class ShareUpdateValue:
    """A change of the state after the snapshot."""

    snapshot_epoch: Int32
    """Number of the snapshot to which this update applies."""
    leader_epoch: Int32
    start_offset: Int64
    """-1 if it has not changed."""
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    state_batches: list[StateBatch]
    """Only the batches whose state has changed."""
