"""DeleteRecords (key 21): v1 answers before throttling; v2 flexible. KIP-107."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, Int64, String


@struct
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64
    """Records below it are deleted; -1 is the high watermark."""


@struct
class DeleteRecordsTopic:
    name: String
    partitions: list[DeleteRecordsPartition]


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    """The start afterwards, -1 with an error."""
    error_code: Int16


@struct
class DeleteRecordsTopicResult:
    name: String
    partitions: list[DeleteRecordsPartitionResult]


@response(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """One outcome per partition.

    Error codes, per partition:
    - OFFSET_OUT_OF_RANGE: negative, or above the high watermark.
    - POLICY_VIOLATION: the topic is compacted only.
    - INVALID_TOPIC_EXCEPTION: an internal topic.
    - REQUEST_TIMED_OUT: a replica has not deleted them within timeout_ms.
    """

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DeleteRecordsTopicResult]
