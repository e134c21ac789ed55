"""OffsetForLeaderEpoch (key 23): where the records of a leader epoch end.

v2 the caller's leader epoch, throttle time (KIP-320); v3 replica id (KIP-392); v4 flexible.
Versions 0 and 1 ended with Kafka 4.0. A client compares the answer with its position to notice
that the log was truncated.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, Int64, String


@struct
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = field(default=-1, ignorable=True)
    """Fences stale metadata; -1 skips the check."""
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    topic: String
    partitions: list[OffsetForLeaderPartition]


@request(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = field(default=-2, since=3, ignorable=True)
    """-1 for a consumer, -2 for a debugging one that may see beyond the high watermark."""
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = field(default=-1, ignorable=True)
    """The largest epoch in the log up to the requested epoch, -1 if there is none."""
    end_offset: Int64 = field(default=-1)
    """The first offset after that epoch, -1 if unknown."""


@struct
class OffsetForLeaderTopicResult:
    topic: String
    partitions: list[EpochEndOffset]


@response(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """One answer per partition."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]
