"""AddOffsetsToTxn (key 25): adds the offsets of a group to a transaction (KIP-98).

v1 answers before throttling; v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE
(KIP-890).
"""

from kohort.protocol.message import field, request, response
from kohort.protocol.types import Int16, Int32, Int64, String


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Adds the partition of __consumer_offsets that stores the group."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@response(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Whether the offsets are part of the transaction now.

    Error codes:
    - INVALID_REQUEST: the transactional id is empty.
    - INVALID_PRODUCER_ID_MAPPING: the transactional id is unknown, or has another producer id.
    - INVALID_PRODUCER_EPOCH, PRODUCER_FENCED (v2): not the current epoch of the producer id.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
