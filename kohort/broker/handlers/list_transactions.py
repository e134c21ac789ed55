"""ListTransactions (key 66): the transactional ids of this broker (KIP-664).

v0-2. v1 a filter by duration (KIP-994), v2 a filter by a pattern for ids (KIP-1152), which is
matched without backtracking; :mod:`kohort.broker.core.transaction.listing` describes the supported
patterns.
"""

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.transaction.listing import STATE_NAMES, ListFilter, Pattern, PatternError
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.slices import Slice
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


@handles(ListTransactionsRequest, versions="0-2")
async def list_transactions(
    ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List transactions in arbitrary order, in steps."""
    wanted = ListFilter(
        states=frozenset(request.state_filters),
        producer_ids=frozenset(request.producer_id_filters),
        duration_ms=request.duration_filter,
        pattern=_pattern(request.transactional_id_pattern),
    )
    host = ctx.broker.transactions.host
    wall_ms = ctx.broker.clock.wall_ms()
    listed: list[TransactionState] = []
    time_slice = Slice(ctx.broker.clock)
    for name in host.ids.names():
        await time_slice.pause()
        transaction = host.transactional_id(name)
        if (
            transaction is None
            or transaction.record is None
            or not wanted.accepts(transaction.record, wall_ms)
        ):
            continue
        if not ctx.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
            continue
        listed.append(
            TransactionState(
                transactional_id=name,
                producer_id=transaction.record.producer_id,
                transaction_state=transaction.record.state.value,
            )
        )
    unknown = dict.fromkeys(name for name in request.state_filters if name not in STATE_NAMES)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=list(unknown),
        transaction_states=listed,
    )


def _pattern(text: str | None) -> Pattern | None:
    """Raises KafkaError: INVALID_REGULAR_EXPRESSION."""
    if not text:
        return None
    try:
        return Pattern(text)
    except PatternError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
