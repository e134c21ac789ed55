"""CreatePartitions (key 37): give topics more partitions.

v1 answers before throttling; v2 flexible; v3 THROTTLING_QUOTA_EXCEEDED (KIP-599). Defined by
KIP-195.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int16, Int32, String


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
    """Topics to enlarge, each on its own."""

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
