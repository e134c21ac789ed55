"""CreateTopics (key 19): create topics.

v2 throttle time; v3 answers before throttling; v4 -1 for the broker's default partitions and
replicas (KIP-464); v5 flexible, configs in the answer (KIP-525); v6 THROTTLING_QUOTA_EXCEEDED
(KIP-599); v7 topic id in the answer (KIP-516). Versions 0 and 1 ended with Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid


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
    """Topics to create, each on its own."""

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
    - INVALID_CONFIG: an unknown config, or a value that it does not take.
    - INVALID_REQUEST: a name twice, or partition count and assignments together.
    - REQUEST_TIMED_OUT: not created within timeout_ms; it may appear later.
    """

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[CreatableTopicResult]
