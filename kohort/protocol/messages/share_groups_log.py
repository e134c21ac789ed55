"""Records of share groups in __consumer_offsets (KIP-932). As with the other records of the topic,
key and value are each preceded by an int16: the type of the record, and version 0.
"""

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import Int8, Int32, Int64, String, Uuid


@record(versions="10", flexible="none")
class ShareGroupMemberMetadataKey:
    """Key of a member's subscription (10)."""

    group_id: String
    member_id: String


@record(versions="11-12", flexible="none")
class ShareGroupMetadataKey:
    """Key of the group's epoch (11), and of the epoch of its target assignment (12)."""

    group_id: String


@record(versions="13-14", flexible="none")
class ShareGroupAssignmentKey:
    """Key of a member's target assignment (13), and of its current assignment (14)."""

    group_id: String
    member_id: String


@record(versions="15", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    """Key of the list of partitions that have a state in __share_group_state (15)."""

    group_id: String


@record(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """Value of type 10: a member's subscription."""

    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


@record(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """Value of type 11: the group's epoch."""

    epoch: Int32
    metadata_hash: Int64
    """Hash of the topics that the group subscribes to."""


@record(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """Value of type 12: the epoch of the group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@struct
class TopicPartition:
    topic_id: Uuid
    partitions: list[Int32]


@record(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """Value of type 13: a member's target assignment."""

    topic_partitions: list[TopicPartition]


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@record(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """Value of type 14: a member's current assignment."""

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
    """Value of type 15: the partitions that have, get or lose a state in __share_group_state."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
