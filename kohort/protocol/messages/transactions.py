"""Requests with which operators inspect transactions, and end hanging ones (KIP-664).

- DescribeProducers (key 61): the state of producers in partitions.
- DescribeTransactions (key 65): state and partitions of transactional ids.
- ListTransactions (key 66): v1 by duration (KIP-994); v2 by pattern (KIP-1152).
- WriteTxnMarkers (key 27): append the markers that end transactions in partitions (KIP-98). Sent by
  coordinators to the partitions' leaders, and by operators' tools to end a hanging transaction. v1
  flexible; v2 transaction version of the marker (KIP-1228). Version 0 ended with Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int8, Int16, Int32, Int64, String


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
    throttle_time_ms: Int32 = field(default=0)
    topics: list[TopicResponse]


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[String]


@struct
class TopicData:
    topic: String
    partitions: list[Int32]


@struct
class DescribedTransaction:
    error_code: Int16
    transactional_id: String
    transaction_state: String
    """Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort; "" with an
    error."""
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    """-1 if none was begun."""
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]
    """The transaction's partitions; while it is being ended, those without a marker yet."""


@response(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """One entry per id, in the order of the request.

    Error codes, per id:
    - TRANSACTIONAL_ID_NOT_FOUND: it is not known.
    - INVALID_REQUEST: it is empty.
    """

    throttle_time_ms: Int32 = field(default=0)
    transaction_states: list[DescribedTransaction]


@request(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Filters, all of which an id must pass."""

    state_filters: list[String]
    """Names of states; empty for all."""
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field(default=-1, since=1)
    """Minimum time since the start of the transaction, in milliseconds; negative for all."""
    transactional_id_pattern: String | None = field(default=None, since=2)
    """A regular expression for the whole id; null or "" for all."""


@struct
class TransactionState:
    transactional_id: String
    producer_id: Int64
    transaction_state: String


@response(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactional ids that pass all filters.

    Error codes:
    - INVALID_REGULAR_EXPRESSION (v2): the pattern cannot be used.
    - COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: wait.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]


@struct
class WritableTxnMarkerTopic:
    name: String
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    """True commits, False aborts."""
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field(default=0, since=2, ignorable=True)
    """2 if the epoch is one above that of the batches (KIP-890), 0 or 1 if both are equal."""


@request(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult:
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@response(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """One outcome per producer and partition.

    Error codes, per partition:
    - INVALID_REQUEST: an epoch or a transaction version below 0.
    - INVALID_PRODUCER_EPOCH: the partition knows a later epoch of the producer.
    - TRANSACTION_COORDINATOR_FENCED: it knows a later epoch of the coordinator.
    """

    markers: list[WritableTxnMarkerResult]
