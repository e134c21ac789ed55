"""DescribeCluster (key 60, KIP-700): v1 brokers or controllers (KIP-919); v2 fenced (KIP-1073).

DescribeQuorum (55, KIP-595): v1 fetch timestamps (KIP-836); v2 directories (KIP-853).
UpdateFeatures (57, KIP-584), the cluster's finalized feature levels: v1 upgrade types and dry runs
(KIP-778); v2 one error for all features (KIP-1022).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, String, Uint16, Uuid


@request(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = field(default=1, since=1)
    """1 brokers, 2 controllers."""
    include_fenced_brokers: Bool = field(default=False, since=2)
    """Whether to include brokers that are registered but not serving."""


@struct
class DescribeClusterBroker:
    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
    is_fenced: Bool = field(default=False, since=2)


@response(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The cluster as this broker sees it.

    Error codes, top level:
    - UNSUPPORTED_ENDPOINT_TYPE (v1): neither brokers nor controllers.
    - MISMATCHED_ENDPOINT_TYPE (v1): controllers asked for on a broker's listener, or the reverse.
    - INVALID_REQUEST: fenced brokers asked of a controller.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None = field(default=None)
    endpoint_type: Int8 = field(default=1, since=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    """A broker returns any live broker: clients need one to send changes to."""
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-0x80000000)
    """Permitted operations as a bit field; the smallest int32 if not requested."""


@struct
class PartitionAsked:
    partition_index: Int32


@struct
class TopicAsked:
    topic_name: String
    partitions: list[PartitionAsked]


@request(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """The partition to describe: partition 0 of __cluster_metadata, the only one."""

    topics: list[TopicAsked]


@struct
class ReplicaState:
    replica_id: Int32
    replica_directory_id: Uuid = field(default=ZERO_UUID, since=2)
    log_end_offset: Int64
    """-1 if unknown."""
    last_fetch_timestamp: Int64 = field(default=-1, since=1, ignorable=True)
    """Time of the last fetch by the leader's clock; -1 for the leader itself, or if it is
    unknown."""
    last_caught_up_timestamp: Int64 = field(default=-1, since=1, ignorable=True)
    """When the replica last had all records, by the leader's clock; now for the leader, -1 if
    unknown."""


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default="", since=2, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@struct
class TopicData:
    topic_name: String
    partitions: list[PartitionData]


@struct
class Listener:
    name: String
    host: String
    port: Uint16


@struct
class Node:
    node_id: Int32
    listeners: list[Listener]


@response(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """The replicas of the metadata.

    Error codes, top level:
    - INVALID_REQUEST: no topic is named.

    Error codes, per partition:
    - UNKNOWN_TOPIC_OR_PARTITION: it is not the partition of the metadata.
    - NOT_LEADER_OR_FOLLOWER: another node is the leader.
    """

    error_code: Int16
    error_message: String | None = field(default="", since=2, ignorable=True)
    topics: list[TopicData]
    nodes: list[Node] = field(default=[], since=2)


@struct
class FeatureUpdateKey:
    feature: String
    max_version_level: Int16
    """The new level; below 1 to remove the feature's level."""
    allow_downgrade: Bool = field(default=False, until=0)
    upgrade_type: Int8 = field(default=1, since=1)
    """1 raises the level, 2 lowers it unless metadata would be lost, 3 lowers it in any case."""


@request(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: Int32 = field(default=60_000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = field(default=False, since=1)


@struct
class UpdatableFeatureResult:
    feature: String
    error_code: Int16
    error_message: String | None


@response(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """The outcome, up to v1 also per feature.

    Error codes:
    - INVALID_UPDATE_VERSION: the feature cannot have that level.
    - INVALID_REQUEST: a feature is named twice, or the upgrade type is unknown.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    results: list[UpdatableFeatureResult] = field(default=[], until=1, ignorable=True)
