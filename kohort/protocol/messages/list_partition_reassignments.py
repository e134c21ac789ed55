"""ListPartitionReassignments (key 46): partitions being moved. v0. KIP-455."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, String


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
    """The requested partitions that are being moved.

    Error codes:
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not describe the cluster.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    topics: list[OngoingTopicReassignment]
