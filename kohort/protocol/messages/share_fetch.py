"""ShareFetch (key 78): acquire records, and acknowledge records acquired earlier (KIP-932).

v0 was early access in Kafka 4.0; v1 is the first stable version; v2 acquire modes (KIP-1206) and
renewed locks (KIP-1222).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.messages.produce import NodeEndpoint
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch, LeaderIdAndEpoch
from kohort.protocol.types import Bool, Int8, Int16, Int32, Int64, Records, String, Uuid


@struct
class FetchPartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class FetchTopic:
    topic_id: Uuid
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """Partitions that leave the session."""

    topic_id: Uuid
    partitions: list[Int32]


@request(key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    """Partitions to add to the session, acknowledgements, and how much to acquire."""

    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    """0 opens a session, -1 closes it; otherwise the epoch that the session expects."""
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFFFFFF)
    max_records: Int32
    """Maximum number of records; in acquire mode 0, the last batch may exceed it."""
    batch_size: Int32
    """Acquired records are split, at batch boundaries, into ranges of at least this many."""
    share_acquire_mode: Int8 = field(default=0, since=2, ignorable=True)
    """0 acquires whole batches, 1 at most max_records."""
    is_renew_ack: Bool = field(default=False, since=2)
    """Whether an acknowledgement has the type renew; nothing is fetched then."""
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


@struct
class AcquiredRecords:
    first_offset: Int64
    last_offset: Int64
    """Inclusive."""
    delivery_count: Int16


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    acknowledge_error_code: Int16
    acknowledge_error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch = field(default=LeaderIdAndEpoch)
    records: Records
    """Whole batches, which may contain records that are not acquired."""
    acquired_records: list[AcquiredRecords]


@struct
class ShareFetchableTopicResponse:
    topic_id: Uuid
    partitions: list[PartitionData]


@response(key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    """Partitions with acquired records, an acknowledgement or an error.

    Error codes, top level:
    - SHARE_SESSION_NOT_FOUND: the member has no share session; open one with epoch 0.
    - INVALID_SHARE_SESSION_EPOCH: a request of the session was lost or duplicated.
    - SHARE_SESSION_LIMIT_REACHED: no further session; try again.
    - INVALID_REQUEST.
    - UNSUPPORTED_VERSION: share groups are switched off.

    Error codes, per partition:
    - UNKNOWN_SERVER_ERROR: the group does not read the partition.
    - Acknowledge error codes: see ShareAcknowledge.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32
    """How long the acquired records remain locked."""
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(default=[])
