"""Records of share groups in __consumer_offsets (KIP-932). As with the other records of the topic,
key and value are each preceded by an int16: the type of the record, and version 0.
"""

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import Int8, Int32, Int64, String, Uuid


@record(versions="10", flexible="none")
class ShareGroupMemberMetadataKey:
    """What a member states."""

    group_id: String
    member_id: String


@record(versions="11-12", flexible="none")
class ShareGroupMetadataKey:
    """The group's epoch (11), and that of the target assignment (12)."""

    group_id: String


@record(versions="13-14", flexible="none")
class ShareGroupAssignmentKey:
    """The target assignment of a member (13), and its current one (14)."""

    group_id: String
    member_id: String


@record(versions="15", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    """The partitions with state in __share_group_state."""

    group_id: String


@record(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """Type 10."""

    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


@record(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """Type 11."""

    epoch: Int32
    metadata_hash: Int64
    """Hash of the topics that the group subscribes to."""


@record(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """Type 12."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@struct
class TopicPartition:
    topic_id: Uuid
    partitions: list[Int32]


@record(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """Type 13."""

    topic_partitions: list[TopicPartition]


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@record(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """Type 14."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


@struct
class TopicPartitionsInfo:
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class TopicInfo:
    topic_id: Uuid
    topic_name: String


@record(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """Type 15."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
