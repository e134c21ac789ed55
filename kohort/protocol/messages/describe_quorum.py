"""DescribeQuorum (key 55): v1 times of fetches (KIP-836); v2 directories (KIP-853). KIP-595."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Int16, Int32, Int64, String, Uint16, Uuid


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
    """Time of being caught up last, by the leader's clock; now for the leader, -1 if it is
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
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not describe the cluster.

    Error codes, per partition:
    - UNKNOWN_TOPIC_OR_PARTITION: it is not the partition of the metadata.
    - NOT_LEADER_OR_FOLLOWER: another node is the leader.
    """

    error_code: Int16
    error_message: String | None = field(default="", since=2, ignorable=True)
    topics: list[TopicData]
    nodes: list[Node] = field(default=[], since=2)
