"""Metadata (key 3): brokers, topics, partitions and their leaders.

v1 racks, controller, internal flag, null for all topics; v2 cluster id; v3 throttle time; v4
whether to create; v5 offline replicas (KIP-112); v6 answers before throttling; v7 leader epoch
(KIP-320); v8 authorised operations (KIP-430); v9 flexible; v10 topic ids, v12 lookup by id
(KIP-516); v11 moves cluster operations to DescribeCluster (KIP-700); v13 top-level error
(KIP-1102).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Bool, Int16, Int32, String, Uuid


@struct
class MetadataRequestTopic:
    """A topic by name, or from v12 by id with a null name."""

    topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
    name: String | None = field(nullable_since=10)


@request(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = field(nullable_since=1)
    """The topics, None for all; an empty list means all in v0 and none from v1 on."""
    allow_auto_topic_creation: Bool = field(default=True, since=4)
    include_cluster_authorized_operations: Bool = field(default=False, since=8, until=10)
    include_topic_authorized_operations: Bool = field(default=False, since=8)


@struct
class MetadataResponseBroker:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None, since=1, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1, since=7, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field(default=[], since=5, ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: Int16
    name: String | None = field(nullable_since=12)
    """The name, None only for an id that no topic has."""
    topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
    """Zero only for a name that no topic has."""
    is_internal: Bool = field(default=False, since=1, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field(default=-0x80000000, since=8)
    """Permitted operations as a bit field; the smallest int32 if not requested."""


@response(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """The cluster as this broker sees it.

    Error codes, top level (v13): REBOOTSTRAP_REQUIRED: the client must start again from its
    bootstrap addresses.

    Error codes, per topic:
    - UNKNOWN_TOPIC_OR_PARTITION: no such name, and it is not created.
    - LEADER_NOT_AVAILABLE: just being created; ask again.
    - INVALID_REQUEST: neither name nor id, or a null name before v12.
    - INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS, POLICY_VIOLATION: it could not be created.

    Error codes, per partition:
    - LEADER_NOT_AVAILABLE: no broker leads it.
    - LISTENER_NOT_FOUND: the leader has no listener of the name used for this request.
    - REPLICA_NOT_AVAILABLE: some replicas are down (v0 only in practice).
    """

    throttle_time_ms: Int32 = field(default=0, since=3, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field(default=None, since=2, ignorable=True)
    controller_id: Int32 = field(default=-1, since=1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(default=-0x80000000, since=8, until=10)
    error_code: Int16 = field(default=0, since=13, ignorable=True)
