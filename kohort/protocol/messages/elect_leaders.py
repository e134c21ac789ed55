"""ElectLeaders (key 43): elect leaders of partitions, the preferred or any live ones.

v1 type of election and top-level error (KIP-460); v2 flexible. Defined by KIP-183.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int8, Int16, Int32, String


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
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not alter the cluster.
    - INVALID_REQUEST: there is no such type of election.

    Error codes, per partition:
    - ELECTION_NOT_NEEDED: it has the leader that would be elected.
    - UNKNOWN_TOPIC_OR_PARTITION: there is none.
    - PREFERRED_LEADER_NOT_AVAILABLE: the preferred replica is not in sync.
    - ELIGIBLE_LEADERS_NOT_AVAILABLE: no replica is alive.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0, since=1)
    replica_election_results: list[ReplicaElectionResult]
