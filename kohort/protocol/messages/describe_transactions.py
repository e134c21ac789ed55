"""DescribeTransactions (key 65): state and partitions of transactional ids (KIP-664)."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, Int64, String


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[String]


@struct
class TopicData:
    topic: String
    partitions: list[Int32]


@struct
class TransactionState:
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
    """Partitions without a marker, once the transaction is being ended."""


@response(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """One entry per id, in the order of the request.

    Error codes, per id:
    - TRANSACTIONAL_ID_NOT_FOUND: it is not known.
    - INVALID_REQUEST: it is empty.
    """

    throttle_time_ms: Int32 = field(default=0)
    transaction_states: list[TransactionState]
