"""OffsetCommit (key 8): a member records how far it has read.

v2 retention time, dropped by v5 (KIP-211); v3 throttle time; v6 leader epoch (KIP-320); v7 static
membership (KIP-345); v8 flexible; v9 member epochs (KIP-848); v10 topic ids instead of names
(KIP-848). Versions 0 and 1 ended with Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    """The next offset to read, not the last one read."""
    committed_leader_epoch: Int32 = field(default=-1, since=6, ignorable=True)
    committed_metadata: String | None


@struct
class OffsetCommitRequestTopic:
    """Positions in one topic, named up to v9 and by id from v10."""

    name: String = field(default="", until=9, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


@request(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1, ignorable=True)
    """-1 with an empty member id: a commit from outside any group."""
    member_id: String = field(ignorable=True)
    group_instance_id: String | None = field(default=None, since=7)
    retention_time_ms: Int64 = field(default=-1, until=4, ignorable=True)
    """-1 leaves expiry to the broker's offsets.retention.minutes."""
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetCommitResponseTopic:
    name: String = field(default="", until=9, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


@response(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """One outcome per partition; an error of the group is put on all of them.

    Error codes:
    - ILLEGAL_GENERATION: the group has a later generation, or (before v9) does not exist.
    - UNKNOWN_MEMBER_ID: not a member, or no member id although the group has members.
    - REBALANCE_IN_PROGRESS: between the joins and the leader's assignment.
    - STALE_MEMBER_EPOCH (v9), FENCED_MEMBER_EPOCH: the epoch of a KIP-848 member is not the
      current one.
    - UNSUPPORTED_VERSION (before v9): the member uses the KIP-848 protocol.
    - OFFSET_METADATA_TOO_LARGE: the metadata exceeds offset.metadata.max.bytes; other partitions
      still commit.
    - INVALID_COMMIT_OFFSET_SIZE: the records did not fit into a batch of the offsets topic.
    """

    throttle_time_ms: Int32 = field(default=0, since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic]
