"""EndTxn (key 26): commit or abort a transaction (KIP-98).

v1 answers before throttling; v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE,
v5 the answer carries the producer id and the epoch of the next transaction (KIP-890).
"""

from kohort.protocol.message import field, request, response
from kohort.protocol.types import Bool, Int16, Int32, Int64, String


@request(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """Commits or aborts the open transaction of a transactional id."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool
    """True commits, False aborts."""


@response(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """Without an error, the outcome of the transaction is decided and final.

    Error codes:
    - INVALID_REQUEST: the transactional id is empty.
    - INVALID_PRODUCER_ID_MAPPING: the transactional id is unknown, or has another producer id.
    - INVALID_PRODUCER_EPOCH, PRODUCER_FENCED (v2): not the current epoch of the producer id.
    - INVALID_TXN_STATE: there is no transaction to end, or it ended the other way.
    - CONCURRENT_TRANSACTIONS: the transaction is being ended; retry.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    producer_id: Int64 = field(default=-1, since=5, ignorable=True)
    """The producer id for the next transaction; -1 with an error."""
    producer_epoch: Int16 = field(default=-1, since=5, ignorable=True)
