"""Requests that change topics.

- CreateTopics (key 19): v2 throttle time; v3 answers before throttling; v4 -1 for the broker's
  default partitions and replicas (KIP-464); v5 flexible, configs in the answer (KIP-525); v6
  THROTTLING_QUOTA_EXCEEDED (KIP-599); v7 topic id in the answer (KIP-516). Versions 0 and 1 ended
  with Kafka 4.0.
- CreatePartitions (key 37, KIP-195): v1 answers before throttling; v2 flexible; v3
  THROTTLING_QUOTA_EXCEEDED (KIP-599).
- DeleteTopics (key 20): v1 throttle time; v2 answers before throttling; v3 TOPIC_DELETION_DISABLED
  (KIP-322); v4 flexible; v5 messages, THROTTLING_QUOTA_EXCEEDED (KIP-599); v6 by id too (KIP-516).
  Version 0 ended with Kafka 4.0.
- DeleteRecords (key 21, KIP-107): v1 answers before throttling; v2 flexible.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, String, Uuid


@struct
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig:
    name: String
    value: String | None


@struct
class CreatableTopic:
    name: String
    num_partitions: Int32
    """-1: the broker's num.partitions, or as many as there are assignments."""
    replication_factor: Int16
    """-1: the broker's default.replication.factor, or as the assignments say."""
    assignments: list[CreatableReplicaAssignment]
    """Empty: the broker places the replicas."""
    configs: list[CreatableTopicConfig]


@request(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field(default=False)


@struct
class CreatableTopicConfigs:
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = field(default=-1, ignorable=True)
    """The same values as in DescribeConfigs."""
    is_sensitive: Bool


@struct
class CreatableTopicResult:
    name: String
    topic_id: Uuid = field(default=ZERO_UUID, since=7, ignorable=True)
    error_code: Int16
    error_message: String | None = field(ignorable=True)
    topic_config_error_code: Int16 = field(default=0, since=5, tag=0, ignorable=True)
    """TOPIC_AUTHORIZATION_FAILED if the client may create but not see configs."""
    num_partitions: Int32 = field(default=-1, since=5, ignorable=True)
    replication_factor: Int16 = field(default=-1, since=5, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(default=[], since=5, ignorable=True)
    """The configs, None if the principal may not see them."""


@response(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """One outcome per topic.

    Error codes, per topic:
    - TOPIC_ALREADY_EXISTS: the name, or one that collides in metrics ("." and "_"), is taken.
    - INVALID_PARTITIONS: neither positive nor -1.
    - INVALID_REPLICATION_FACTOR: more replicas than brokers, or not positive.
    - INVALID_REPLICA_ASSIGNMENT: unknown or repeated brokers, or gaps in the partition numbers.
    - INVALID_CONFIG: an unknown config, or an invalid value.
    - INVALID_REQUEST: a name twice, or partition count and assignments together.
    - REQUEST_TIMED_OUT: not created within timeout_ms; it may appear later.
    """

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[CreatableTopicResult]


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32]


@struct
class CreatePartitionsTopic:
    name: String
    count: Int32
    """Partitions in all, not the number to add."""
    assignments: list[CreatePartitionsAssignment] | None
    """One entry per new partition; None if the broker places the replicas."""


@request(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


@struct
class CreatePartitionsTopicResult:
    name: String
    error_code: Int16
    error_message: String | None = field(default=None)


@response(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """One outcome per topic.

    Error codes, per topic:
    - INVALID_PARTITIONS: not more than the current number.
    - INVALID_REPLICA_ASSIGNMENT: unknown or repeated brokers, or not one entry per new partition.
    - INVALID_REQUEST: a topic twice.
    - REASSIGNMENT_IN_PROGRESS: replicas of the topic are being moved.
    - REQUEST_TIMED_OUT: not done within timeout_ms.
    """

    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsTopicResult]


@struct
class DeleteTopicState:
    """One topic, by name or (with a null name) by id."""

    name: String | None = field(default=None)
    topic_id: Uuid


@request(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = field(default=[], since=6)
    """Replaces topic_names from v6 on."""
    topic_names: list[String] = field(default=[], until=5, ignorable=True)
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    name: String | None = field(nullable_since=6)
    """The name, None for an id that no topic has."""
    topic_id: Uuid = field(default=ZERO_UUID, since=6, ignorable=True)
    error_code: Int16
    error_message: String | None = field(default=None, since=5, ignorable=True)


@response(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """One outcome per topic.

    Error codes, per topic:
    - TOPIC_DELETION_DISABLED (v3): delete.topic.enable is off; INVALID_REQUEST before.
    - INVALID_REQUEST: a topic twice, or both name and id.
    - REQUEST_TIMED_OUT: not deleted within timeout_ms; it will be deleted later.
    - UNSUPPORTED_VERSION: deletion by id in a cluster without ids.
    """

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    responses: list[DeletableTopicResult]


@struct
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64
    """Records below it are deleted; -1 is the high watermark."""


@struct
class DeleteRecordsTopic:
    name: String
    partitions: list[DeleteRecordsPartition]


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    """The log start offset after the deletion, -1 with an error."""
    error_code: Int16


@struct
class DeleteRecordsTopicResult:
    name: String
    partitions: list[DeleteRecordsPartitionResult]


@response(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """One outcome per partition.

    Error codes, per partition:
    - OFFSET_OUT_OF_RANGE: negative, or above the high watermark.
    - POLICY_VIOLATION: the topic is compacted only.
    - INVALID_TOPIC_EXCEPTION: an internal topic.
    - REQUEST_TIMED_OUT: a replica has not deleted them within timeout_ms.
    """

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DeleteRecordsTopicResult]
