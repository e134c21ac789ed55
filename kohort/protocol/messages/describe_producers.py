"""DescribeProducers (key 61): the state of producers in partitions (KIP-664)."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, Int64, String


@struct
class TopicRequest:
    name: String
    partition_indexes: list[Int32]


@request(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest]


@struct
class ProducerState:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)
    """-1 after a marker that raised the epoch."""
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32
    """-1 before any marker."""
    current_txn_start_offset: Int64 = field(default=-1)
    """First offset of its open transaction, -1 for none."""


@struct
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    active_producers: list[ProducerState]


@struct
class TopicResponse:
    name: String
    partitions: list[PartitionResponse]


@response(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """One entry per partition."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[TopicResponse]
