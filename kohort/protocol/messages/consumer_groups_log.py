"""Records of consumer groups in __consumer_offsets (KIP-848). As with the other records of the
topic, key and value are each preceded by an int16: the type of the record, and version 0.
"""

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import Bytes, Int8, Int32, Int64, String, Uuid


@record(versions="3-4", flexible="none")
class ConsumerGroupMetadataKey:
    """Key of the group's epoch (3), and of its topics' metadata (4, only from Kafka before 4.1)."""

    group_id: String


@record(versions="5", flexible="none")
class ConsumerGroupMemberMetadataKey:
    """Key of a member's subscription and settings (5)."""

    group_id: String
    member_id: String


@record(versions="6", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: String


@record(versions="7-8", flexible="none")
class ConsumerGroupAssignmentKey:
    """Key of a member's target assignment (7), and of its current assignment (8)."""

    group_id: String
    member_id: String


@record(versions="16", flexible="none")
class ConsumerGroupRegularExpressionKey:
    """Key of the topics that match a regular expression of the group (16)."""

    group_id: String
    regular_expression: String


@record(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """Value of type 3: the group's epoch."""

    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)
    """Hash of the topics that the group subscribes to."""


@struct
class ClassicProtocol:
    name: String
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    """Additional settings of a member that uses the classic protocol."""

    session_timeout_ms: Int32 = field(default=0)
    supported_protocols: list[ClassicProtocol] = field(default=[])


@record(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """Value of type 5: a member's subscription and settings."""

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
    """None if the member does not use the classic protocol. The None is written, because Kafka
    takes a record without the tag for that of a classic member."""


@record(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """Value of type 6: the epoch of the group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@struct
class TopicPartition:
    topic_id: Uuid
    partitions: list[Int32]


@record(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """Value of type 7: a member's target assignment."""

    topic_partitions: list[TopicPartition]


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default=[], tag=0)
    """For each partition the epoch at which it was assigned; empty or None: the member's epoch."""


@record(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """Value of type 8: a member's current assignment."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@record(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """Value of type 16: the topics that match a regular expression."""

    topics: list[String]
    version: Int64
    timestamp: Int64
