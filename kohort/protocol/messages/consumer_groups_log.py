"""Records of consumer groups in __consumer_offsets (KIP-848). As with the other records of the
topic, key and value are each preceded by an int16: the type of the record, and version 0.
"""

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import Bytes, Int8, Int32, Int64, String, Uuid


@record(versions="3-6", flexible="none")
class GroupKey:
    """The group's epoch (3), metadata of its topics (4, only by brokers before 4.1), and the epoch
    of its target assignment (6).
    """

    group_id: String


@record(versions="5-8", flexible="none")
class MemberKey:
    """What a member states (5), its target assignment (7), and its current one (8)."""

    group_id: String
    member_id: String


@record(versions="16", flexible="none")
class RegexKey:
    """A regular expression of the group (16)."""

    group_id: String
    regular_expression: String


@record(versions="0", flexible="0+")
class GroupEpochValue:
    """Type 3."""

    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)
    """Hash of the topics that the group subscribes to."""


@struct
class ClassicProtocol:
    """An assignor that a classic member supports."""

    name: String
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    """What a member of the classic protocol states in addition."""

    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


@record(versions="0", flexible="0+")
class MemberValue:
    """Type 5, of a member that does not use the classic protocol. Its tag is always written: Kafka
    reads a record without it as that of a classic member.
    """

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32
    server_assignor: String | None
    classic_member_metadata: Int8 = field(default=-1, tag=0)
    """0, a null in the form that only a structure in a tag has; -1 if the tag is absent."""


@record(versions="0", flexible="0+")
class ClassicMemberValue:
    """Type 5, of a member that uses the classic protocol."""

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(default=None, tag=0)


@record(versions="0", flexible="0+")
class TargetEpochValue:
    """Type 6."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0)


@struct
class TargetTopicPartitions:
    """Partitions of one topic in a target assignment."""

    topic_id: Uuid
    partitions: list[Int32]


@record(versions="0", flexible="0+")
class TargetValue:
    """Type 7."""

    topic_partitions: list[TargetTopicPartitions]


@struct
class CurrentTopicPartitions:
    """Partitions of one topic that belong to a member."""

    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default=None, tag=0)
    """For each partition the epoch at which it was assigned; None: the member's epoch."""


@record(versions="0", flexible="0+")
class CurrentValue:
    """Type 8."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[CurrentTopicPartitions]
    partitions_pending_revocation: list[CurrentTopicPartitions]


@record(versions="0", flexible="0+")
class RegexValue:
    """Type 16."""

    topics: list[String]
    version: Int64
    timestamp: Int64
