"""InitProducerId (key 22): give a producer its id and epoch.

v1 answers before throttling; v2 flexible; v3 a producer may continue with its id (KIP-360); v4
PRODUCER_FENCED (KIP-588); v5 TRANSACTION_ABORTABLE (KIP-890). Kafka's v6 (two-phase commit,
KIP-939) is not released and not declared here.
"""

from kohort.protocol.message import field, request, response
from kohort.protocol.types import Int16, Int32, Int64, String


@request(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    """A request for a producer id. Without a transactional id any broker answers; with one only its
    coordinator does.
    """

    transactional_id: String | None
    transaction_timeout_ms: Int32
    """Only with a transactional id: open transactions older than this are aborted."""
    producer_id: Int64 = field(default=-1, since=3)
    """The id to continue with, -1 for a new one."""
    producer_epoch: Int16 = field(default=-1, since=3)


@response(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    """The id and epoch to write into batches.

    Error codes:
    - INVALID_TRANSACTION_TIMEOUT: above the broker's transaction.max.timeout.ms.
    - INVALID_REQUEST: an empty transactional id, or a producer id without an epoch.
    - INVALID_PRODUCER_EPOCH, PRODUCER_FENCED (v4): a newer instance of the same producer is at
      work.
    - INVALID_PRODUCER_ID_MAPPING: the id does not belong to this transactional id.
    """

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    """-1 with an error."""
    producer_epoch: Int16
