"""Produce (key 0): append record batches to partitions.

v3 transactional id and batch format 2 (KIP-98); v5 log start offset; v7 zstd allowed (KIP-110); v8
per-record errors (KIP-467); v9 flexible (KIP-482); v10 new leader in the answer (KIP-951); v11
TRANSACTION_ABORTABLE, v12 implied AddPartitionsToTxn (KIP-890); v13 topic ids instead of names
(KIP-516). Versions 0 to 2 ended with Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Int16, Int32, Int64, Records, String, Uuid


@struct
class PartitionProduceData:
    index: Int32
    records: Records | None
    """Exactly one batch of format 2; a memoryview of the frame when decoded."""


@struct
class TopicProduceData:
    """The batches for one topic, named up to v12 and by id from v13."""

    name: String = field(default="", until=12, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
    partition_data: list[PartitionProduceData]


@request(key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    """Batches for any number of partitions, with one acks setting."""

    transactional_id: String | None = field(default=None)
    acks: Int16
    """0: no response; 1: answer when the leader has the batch; -1: when every in-sync replica has
    it."""
    timeout_ms: Int32
    """Limits the wait for acks=-1, not the append itself."""
    topic_data: list[TopicProduceData]


@struct
class BatchIndexAndErrorMessage:
    """The reason why one record caused its whole batch to be refused."""

    batch_index: Int32
    """Position of the record inside its batch, from 0."""
    batch_index_error_message: String | None = field(default=None)


@struct
class LeaderIdAndEpoch:
    """The current leader of the partition; sent with NOT_LEADER_OR_FOLLOWER."""

    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    """Offset given to the first record, -1 with an error."""
    log_append_time_ms: Int64 = field(default=-1, ignorable=True)
    """Broker time of the append if the topic uses log-append time, else -1."""
    log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(default=[], since=8, ignorable=True)
    error_message: String | None = field(default=None, since=8, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(default=LeaderIdAndEpoch, since=10, tag=0)


@struct
class TopicProduceResponse:
    name: String = field(default="", until=12, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    """Address of a leader named in this response."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)


@response(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """One outcome per partition; each partition fails independently.

    Error codes, per partition:
    - CORRUPT_MESSAGE: the CRC does not match the batch.
    - MESSAGE_TOO_LARGE: the batch exceeds the topic's max.message.bytes.
    - RECORD_LIST_TOO_LARGE: the batch does not fit into one segment.
    - INVALID_TOPIC_EXCEPTION: an internal topic, or an illegal name.
    - INVALID_REQUIRED_ACKS: acks is not -1, 0 or 1 (on every partition).
    - NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND: fewer in sync than
      min.insync.replicas, found before or after the append.
    - REQUEST_TIMED_OUT: appended, but not acknowledged by all within timeout_ms.
    - INVALID_TIMESTAMP: a record lies outside the topic's timestamp bounds.
    - INVALID_RECORD: not exactly one well-formed batch of format 2, or a record the topic refuses.
    - UNSUPPORTED_COMPRESSION_TYPE: zstd before v7.
    - OUT_OF_ORDER_SEQUENCE_NUMBER: a gap or an overlap in an idempotent producer's numbers.
    - INVALID_PRODUCER_EPOCH: a newer instance of the same producer is at work.
    - UNKNOWN_PRODUCER_ID: the producer's state is no longer known.
    - INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS,
      TRANSACTION_ABORTABLE (v11): the partition is not part of the producer's open transaction.
    - KAFKA_STORAGE_ERROR: the disk refused the append; nothing was acknowledged.
    """

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(default=[], since=10, tag=0)
