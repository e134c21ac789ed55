"""Fetch (key 1): read record batches, waiting if there are too few.

v5 log start offset; v7 incremental sessions (KIP-227); v8 answers before throttling (KIP-219); v9
leader epoch check (KIP-320); v10 zstd (KIP-110); v11 rack and follower reads (KIP-392); v12
flexible, divergence and leader tags (KIP-482, KIP-595); v13 topic ids (KIP-516); v14
OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405); v15 replica state (KIP-903); v16 leader endpoints
(KIP-951); v17 replica directory (KIP-853); v18 follower's high watermark (KIP-1166). Versions 0 to
3 ended with Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint
from kohort.protocol.types import ZERO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid


@struct
class ReplicaState:
    """Identity of a fetching follower; a consumer leaves it at -1."""

    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


@struct
class FetchPartition:
    """The offset to read from in one partition, and the maximum size."""

    partition: Int32
    current_leader_epoch: Int32 = field(default=-1, since=9, ignorable=True)
    """Fences stale metadata; -1 skips the check."""
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field(default=-1, since=12)
    """Epoch of the follower's last record, for finding where the logs diverge."""
    log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
    """Only followers send it."""
    partition_max_bytes: Int32
    """A limit that the first batch may exceed."""
    replica_directory_id: Uuid = field(default=ZERO_UUID, since=17, tag=0, ignorable=True)
    high_watermark: Int64 = field(default=0x7FFFFFFFFFFFFFFF, since=18, tag=1, ignorable=True)
    """The follower's high watermark; the largest int64 if it is not given."""


@struct
class FetchTopic:
    """Partitions of one topic, named up to v12 and by id from v13."""

    topic: String = field(default="", until=12, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """Partitions that leave an incremental session."""

    topic: String = field(default="", until=12, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
    partitions: list[Int32]


@request(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    """The partitions to read, how long to wait and how much to send."""

    cluster_id: String | None = field(default=None, since=12, tag=0, ignorable=True)
    """Only between controllers."""
    replica_id: Int32 = field(default=-1, until=14)
    """-1 for a consumer; moved into replica_state by v15."""
    replica_state: ReplicaState = field(default=ReplicaState, since=15, tag=1)
    max_wait_ms: Int32
    """Maximum time to delay the answer while there are fewer than min_bytes."""
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFFFFFF, ignorable=True)
    isolation_level: Int8 = field(default=0, ignorable=True)
    """0 reads everything below the high watermark, 1 up to the last stable offset."""
    session_id: Int32 = field(default=0, since=7, ignorable=True)
    session_epoch: Int32 = field(default=-1, since=7, ignorable=True)
    """-1 without a session, 0 opens one, higher values continue it."""
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(default=[], since=7)
    rack_id: String = field(default="", since=11, ignorable=True)


@struct
class EpochEndOffset:
    """The offset at which the follower's log diverges from the leader's."""

    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class SnapshotId:
    """The snapshot that replaces offsets below the log start (controller log only)."""

    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@struct
class AbortedTransaction:
    """Records of this producer from this offset on are to be dropped up to its abort marker."""

    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1, ignorable=True)
    """The offset below which every transaction is decided."""
    log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
    diverging_epoch: EpochEndOffset = field(default=EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = field(default=LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = field(default=SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(ignorable=True)
    """The aborted transactions, None unless read with isolation level 1."""
    preferred_read_replica: Int32 = field(default=-1, since=11)
    """The closer replica to read from, or -1."""
    records: Records | None
    """Whole batches, except that the last may be truncated; empty, not None, at the end of the
    log."""


@struct
class FetchableTopicResponse:
    topic: String = field(default="", until=12, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
    partitions: list[PartitionData]


@response(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """Batches for each requested partition.

    Error codes, top level (v7+):
    - FETCH_SESSION_ID_NOT_FOUND: the session was evicted or never existed; open a new one.
    - INVALID_FETCH_SESSION_EPOCH: a request of the session was lost or duplicated.
    - FETCH_SESSION_TOPIC_ID_ERROR: a session mixes topic names and topic ids.
    - INCONSISTENT_CLUSTER_ID: a controller of another cluster asked.

    Error codes, per partition:
    - OFFSET_OUT_OF_RANGE: below the log start or above the high watermark.
    - INCONSISTENT_TOPIC_ID (v13): the topic was deleted and created again.
    - NOT_LEADER_OR_FOLLOWER: no replica of the partition is here.
    - REPLICA_NOT_AVAILABLE: the replica cannot serve consumers yet.
    - OFFSET_MOVED_TO_TIERED_STORAGE (v14): a follower requests an offset that only remote storage
    has.
    - CORRUPT_MESSAGE: the log itself is damaged at this place.
    - UNSUPPORTED_COMPRESSION_TYPE: zstd batches asked for below v10.
    """

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(default=0, since=7, ignorable=True)
    session_id: Int32 = field(default=0, since=7)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(default=[], since=16, tag=0)
