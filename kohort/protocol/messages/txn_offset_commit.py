"""TxnOffsetCommit (key 28): positions that become visible when a transaction commits (KIP-98).

v1 answers before throttling; v2 leader epoch (KIP-320); v3 flexible, the member and its generation
(KIP-447); v4 TRANSACTION_ABORTABLE, v5 implied AddOffsetsToTxn (KIP-890); v6 topic ids instead of
names (KIP-1319).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    """The next offset to read, not the last one read."""
    committed_leader_epoch: Int32 = field(default=-1, since=2, ignorable=True)
    committed_metadata: String | None


@struct
class TxnOffsetCommitRequestTopic:
    """Positions in one topic, identified by name up to v5 and by id from v6."""

    name: String = field(default="", until=5, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition]


@request(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = field(default=-1, since=3)
    """-1 if the producer does not name its member, as before KIP-447."""
    member_id: String = field(default="", since=3)
    group_instance_id: String | None = field(default=None, since=3)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class TxnOffsetCommitResponseTopic:
    name: String = field(default="", until=5, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition]


@response(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    """One outcome per partition; an error of the group or the transaction is put on all of them.

    Error codes, per partition:
    - INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH: not the producer id or epoch of the
      transactional id.
    - INVALID_TXN_STATE (before v4), TRANSACTION_ABORTABLE (v4): the offsets were not added to the
      transaction, or there is none.
    - ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID (v3): not a current member.
    - GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH (v6): the same in a KIP-848 group.
    - OFFSET_METADATA_TOO_LARGE: other partitions are stored.
    """

    throttle_time_ms: Int32 = field(default=0)
    topics: list[TxnOffsetCommitResponseTopic]
