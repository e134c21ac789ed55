"""AlterPartitionReassignments (key 45): v1 whether replicas may change in number. KIP-455, 860."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int16, Int32, String


@struct
class ReassignablePartition:
    partition_index: Int32
    replicas: list[Int32] | None = field(default=None)
    """Ids of brokers; None stops a running move."""


@struct
class ReassignableTopic:
    name: String
    partitions: list[ReassignablePartition]


@request(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = field(default=60_000)
    allow_replication_factor_change: Bool = field(default=True, since=1)
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: String | None


@struct
class ReassignableTopicResponse:
    name: String
    partitions: list[ReassignablePartitionResponse]


@response(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """One outcome per partition.

    Error codes, top level:
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not alter the cluster.

    Error codes, per partition:
    - UNKNOWN_TOPIC_OR_PARTITION: there is none.
    - INVALID_REPLICA_ASSIGNMENT: no broker, an unknown one, or one twice.
    - INVALID_REPLICATION_FACTOR: the number of replicas would change and may not.
    - NO_REASSIGNMENT_IN_PROGRESS: nothing to stop.
    """

    throttle_time_ms: Int32 = field(default=0)
    allow_replication_factor_change: Bool = field(default=True, since=1, ignorable=True)
    error_code: Int16
    error_message: String | None
    responses: list[ReassignableTopicResponse]
