"""Records of consumer groups in __consumer_offsets (KIP-848). As with the other records of the
topic, key and value are each preceded by an int16: the type of the record, and version 0.
"""

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import Bytes, Int8, Int32, Int64, String, Uuid


@record(versions="3-4", flexible="none")
class ConsumerGroupMetadataKey:
    """The group's epoch (3), and metadata of its topics (4, only by brokers before 4.1)."""

    group_id: String


@record(versions="5", flexible="none")
class ConsumerGroupMemberMetadataKey:
    """What a member states."""

    group_id: String
    member_id: String


@record(versions="6", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: String


@record(versions="7-8", flexible="none")
class ConsumerGroupAssignmentKey:
    """The target assignment of a member (7), and its current one (8)."""

    group_id: String
    member_id: String


@record(versions="16", flexible="none")
class ConsumerGroupRegularExpressionKey:
    """A regular expression of the group (16)."""

    group_id: String
    regular_expression: String


@record(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """Type 3."""

    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)
    """Hash of the topics that the group subscribes to."""


@struct
class ClassicProtocol:
    name: String
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    """What a member of the classic protocol states in addition."""

    session_timeout_ms: Int32 = field(default=0)
    supported_protocols: list[ClassicProtocol] = field(default=[])


@record(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """Type 5."""

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(
        default=ClassicMemberMetadata, tag=0
    )
    """None, which is written, if the member does not use the classic protocol: Kafka reads a record
    without the tag as that of a classic member with an empty structure."""


@record(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """Type 6."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@struct
class TopicPartition:
    topic_id: Uuid
    partitions: list[Int32]


@record(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """Type 7."""

    topic_partitions: list[TopicPartition]


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default=[], tag=0)
    """For each partition the epoch at which it was assigned; empty or None: the member's epoch."""


@record(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """Type 8."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@record(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """Type 16."""

    topics: list[String]
    version: Int64
    timestamp: Int64
