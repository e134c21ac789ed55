"""ListTransactions (key 66, KIP-664): v1 by duration (KIP-994); v2 by pattern (KIP-1152)."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, Int64, String


@request(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Filters, all of which an id must pass."""

    state_filters: list[String]
    """Names of states; empty for all."""
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field(default=-1, since=1)
    """Milliseconds since the start of the transaction; negative for all."""
    transactional_id_pattern: String | None = field(default=None, since=2)
    """A regular expression for the whole id; null or "" for all."""


@struct
class TransactionState:
    transactional_id: String
    producer_id: Int64
    transaction_state: String


@response(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The ids that pass.

    Error codes:
    - INVALID_REGULAR_EXPRESSION (v2): the pattern cannot be used.
    - COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: wait.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]
