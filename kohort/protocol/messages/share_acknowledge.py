"""ShareAcknowledge (key 79): report the outcome of processing acquired records (KIP-932).

v0 was early access in Kafka 4.0; v1 is the first stable version; v2 renews locks (KIP-1222).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.messages.produce import NodeEndpoint
from kohort.protocol.types import Bool, Int8, Int16, Int32, Int64, String, Uuid


@struct
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    """Inclusive."""
    acknowledge_types: list[Int8]
    """One for the whole batch or one per offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""


@struct
class AcknowledgePartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgeTopic:
    topic_id: Uuid
    partitions: list[AcknowledgePartition]


@request(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    """-1 closes the session; otherwise the epoch that the session expects."""
    is_renew_ack: Bool = field(default=False, since=2)
    """Whether a batch has the type renew."""
    topics: list[AcknowledgeTopic]


@struct
class LeaderIdAndEpoch:
    """The current leader of the partition; sent with NOT_LEADER_OR_FOLLOWER."""

    leader_id: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch = field(default=LeaderIdAndEpoch)


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid
    partitions: list[PartitionData]


@response(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    """One outcome per partition: its acknowledgements succeed or fail together.

    Error codes, top level:
    - SHARE_SESSION_NOT_FOUND: the member has no share session; open one with ShareFetch.
    - INVALID_SHARE_SESSION_EPOCH: a request of the session was lost or duplicated.
    - INVALID_REQUEST.
    - UNSUPPORTED_VERSION: share groups are switched off.

    Error codes, per partition:
    - INVALID_RECORD_STATE: a record is not acquired, or not by this member.
    - INVALID_REQUEST: bad offsets or types.
    - UNKNOWN_SERVER_ERROR: the group does not read the partition.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field(default=0, since=2, ignorable=True)
    """How long a record that is acquired or renewed now remains locked."""
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(default=[])
