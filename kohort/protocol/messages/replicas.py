"""AlterPartitionReassignments (key 45) and ListPartitionReassignments (46): moves of partitions
(KIP-455); ElectLeaders (43): elect leaders, the preferred or any live ones (KIP-183).

AlterPartitionReassignments: v1 whether replicas may change in number (KIP-860). ElectLeaders: v1
type of election and top-level error (KIP-460); v2 flexible.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int8, Int16, Int32, String


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

    Error codes, per partition:
    - INVALID_REPLICA_ASSIGNMENT: an empty list, or an unknown or repeated broker.
    - INVALID_REPLICATION_FACTOR: the number of replicas would change and may not.
    - NO_REASSIGNMENT_IN_PROGRESS: no move to stop.
    """

    throttle_time_ms: Int32 = field(default=0)
    allow_replication_factor_change: Bool = field(default=True, since=1, ignorable=True)
    error_code: Int16
    error_message: String | None
    responses: list[ReassignableTopicResponse]


@struct
class ListPartitionReassignmentsTopics:
    name: String
    partition_indexes: list[Int32]


@request(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = field(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)
    """The topics, None for all."""


@struct
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@struct
class OngoingTopicReassignment:
    name: String
    partitions: list[OngoingPartitionReassignment]


@response(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The requested partitions that are being moved."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    topics: list[OngoingTopicReassignment]


@struct
class TopicPartitions:
    topic: String
    partitions: list[Int32]


@request(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: Int8 = field(default=0, since=1)
    """0 elects the preferred replica, 1 any live replica if none is in sync."""
    topic_partitions: list[TopicPartitions] | None
    """The partitions, None for all."""
    timeout_ms: Int32 = field(default=60_000)


@struct
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: String | None


@struct
class ReplicaElectionResult:
    topic: String
    partition_result: list[PartitionResult]


@response(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """One outcome per partition; if all partitions were requested, only for those with a new
    leader.

    Error codes, top level (v1):
    - INVALID_REQUEST: there is no such type of election.

    Error codes, per partition:
    - ELECTION_NOT_NEEDED: it has the leader that would be elected.
    - PREFERRED_LEADER_NOT_AVAILABLE: the preferred replica is not in sync.
    - ELIGIBLE_LEADERS_NOT_AVAILABLE: no replica is alive.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0, since=1)
    replica_election_results: list[ReplicaElectionResult]
