"""AddPartitionsToTxn (key 24): partitions join a transaction before their first record in it.

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 several transactions in one request, and verification
without adding (KIP-890), between brokers; v5 TRANSACTION_ABORTABLE (KIP-890).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int16, Int32, Int64, String


@struct
class AddPartitionsToTxnTopic:
    name: String
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction:
    """One transaction of a request of v4 and later."""

    transactional_id: String = field(since=4)
    producer_id: Int64 = field(since=4)
    producer_epoch: Int16 = field(since=4)
    verify_only: Bool = field(default=False, since=4)
    """Only verify that the partitions are in the transaction; add nothing."""
    topics: list[AddPartitionsToTxnTopic] = field(since=4)


@request(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """One transaction up to v3, any number of them from v4."""

    transactions: list[AddPartitionsToTxnTransaction] = field(default=[], since=4)
    v3_and_below_transactional_id: String = field(default="", until=3)
    v3_and_below_producer_id: Int64 = field(default=0, until=3)
    v3_and_below_producer_epoch: Int16 = field(default=0, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default=[], until=3)


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@struct
class AddPartitionsToTxnTopicResult:
    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    """The outcomes for one transaction, from v4."""

    transactional_id: String = field(since=4)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(since=4)


@response(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """One outcome per partition; up to v3 all are added or none.

    Error codes, per partition:
    - INVALID_REQUEST: the transactional id is empty.
    - INVALID_PRODUCER_ID_MAPPING: the transactional id is unknown, or has another producer id.
    - INVALID_PRODUCER_EPOCH, PRODUCER_FENCED (v2): not the current epoch of the producer id.
    - OPERATION_NOT_ATTEMPTED: another partition of the request was refused.
    - TRANSACTION_ABORTABLE (v5): verification shows that it is not in the transaction.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0, since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default=[], since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default=[], until=3)
