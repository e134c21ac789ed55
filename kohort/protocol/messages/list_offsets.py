"""ListOffsets (key 2): the offset of a timestamp, or of one of the ends of a log.

v2 isolation level (KIP-98); v4 leader epoch (KIP-320); v5 OFFSET_NOT_AVAILABLE (KIP-207); v6
flexible; v7 largest timestamp, -3 (KIP-734); v8 local log start, -4 (KIP-405); v9 last tiered
offset, -5 (KIP-1005); v10 timeout for remote lookups (KIP-1075); v11 first offset not yet tiered,
-6 (KIP-1023). Version 0 ended with Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int8, Int16, Int32, Int64, String


@struct
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = field(default=-1, since=4, ignorable=True)
    timestamp: Int64
    """Milliseconds, or -1 end, -2 start, -3 largest timestamp, -4 local start, -5 tiered end, -6
    first not yet tiered."""


@struct
class ListOffsetsTopic:
    name: String
    partitions: list[ListOffsetsPartition]


@request(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: Int32
    """-1 for a consumer, -2 for a debugging one that may see beyond the high watermark."""
    isolation_level: Int8 = field(default=0, since=2)
    """The isolation level; with 1 the end is the last stable offset."""
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field(default=0, since=10, ignorable=True)
    """Only for lookups that read remote storage."""


@struct
class ListOffsetsPartitionResponse:
    """The answer for one partition; offset and timestamp are -1 if there is no such record."""

    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field(default=-1, since=4)


@struct
class ListOffsetsTopicResponse:
    name: String
    partitions: list[ListOffsetsPartitionResponse]


@response(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """One answer per partition.

    Error codes, per partition:
    - OFFSET_NOT_AVAILABLE (v5): a new leader does not know its high watermark yet.
    - LEADER_NOT_AVAILABLE: the same, for clients below v5.
    - UNSUPPORTED_FOR_MESSAGE_FORMAT: the log has no timestamps.
    - UNSUPPORTED_VERSION: a special timestamp that this request version does not have.
    - INVALID_REQUEST: the same partition twice in one request.
    - REQUEST_TIMED_OUT (v10): remote storage did not answer within timeout_ms.
    """

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse]
