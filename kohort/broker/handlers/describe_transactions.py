"""DescribeTransactions (key 65): state and partitions of transactional ids (KIP-664).

v0. Only durable state is shown. While a transaction is being ended only its partitions without a
marker are listed; after that none.
"""

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.transaction.encoding import by_topic
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, ErrorTemplate, OnError
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.repeats import check_repeats
from kohort.broker.transactions.host import TransactionHost
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def _check(ctx: RequestContext, request: DescribeTransactionsRequest) -> None:
    del ctx
    check_repeats(request.transactional_ids)


@handles(
    DescribeTransactionsRequest,
    versions="0",
    on_error=OnError(
        ErrorTemplate(
            response="transaction_states",
            request="transactional_ids",
            copied={"transactional_id": ITSELF},
        )
    ),
    parts=(lists("transactional_ids", "transaction_states"),),
    prepare=_check,
)
def describe_transactions(
    ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each id, in order, including duplicates."""
    _check(ctx, request)
    host = ctx.broker.transactions.host
    return DescribeTransactionsResponse(
        transaction_states=[_describe(ctx, host, name) for name in request.transactional_ids]
    )


def _describe(ctx: RequestContext, host: TransactionHost, name: str) -> TransactionState:
    error = host.error(name)
    if not ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    transaction = None if error else host.transactional_id(name)
    if transaction is None or transaction.record is None:
        return TransactionState(
            error_code=error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    record = transaction.record
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=name,
        transaction_state=record.state.value,
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_ms,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(transaction.unmarked).items()
            if ctx.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )
