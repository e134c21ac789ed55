"""DescribeTopicPartitions (key 75): topics in pages. Only v0, flexible. KIP-966."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int16, Int32, String, Uuid


@struct
class TopicRequest:
    name: String


@struct
class Cursor:
    topic_name: String
    partition_index: Int32


@request(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """The topics to describe, and where to start."""

    topics: list[TopicRequest]
    """Empty: all topics."""
    response_partition_limit: Int32 = field(default=2000)
    """The broker may have a lower limit of its own."""
    cursor: Cursor | None = field(default=None)
    """Where to start, None for the start; topics are answered in the order of their names."""


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = field(default=None)
    """Replicas that are out of sync, but are known to have all committed records."""
    last_known_elr: list[Int32] | None = field(default=None)
    """Replicas that were eligible before all of them last stopped uncleanly."""
    offline_replicas: list[Int32] = field(ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16
    name: String | None
    topic_id: Uuid = field(ignorable=True)
    is_internal: Bool = field(default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=-0x80000000)
    """Permitted operations as a bit field; the smallest int32 if not computed."""


@response(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """One page of topics, with the partitions of each.

    Error codes, per partition:
    - LEADER_NOT_AVAILABLE: no broker leads it.
    - LISTENER_NOT_FOUND: the leader has no listener of the name used for this request.

    A limit below 1 or a negative cursor partition fails the whole request with INVALID_REQUEST.
    """

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = field(default=None)
    """Where the next page starts, None if this was the last one."""
