"""ListTransactions (key 66): the transactional ids of this broker (KIP-664).

v0-2. v1 has a filter by duration (KIP-994), v2 a filter by a pattern for ids (KIP-1152). RE2
matches the pattern and never backtracks: for any pattern, the time is proportional to the length of
the text times the length of the pattern. Kafka uses RE2/J, the Java port of RE2.

DescribeTransactions (key 65): state and partitions of transactional ids (KIP-664).

v0. Only durable state is shown. While a transaction is being ended only its partitions without a
marker are listed; after that none.

DescribeProducers (key 61): the producer state of partitions (KIP-664).

v0. For operators who look for the transaction that blocks a partition's readers. Internal topics
are included.
"""

from typing import TYPE_CHECKING, Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.transaction.records import by_topic
from kohort.broker.core.transaction.states import TransactionState as State
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements, per_partition, same
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import check_repeats
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.names import name_problem
from kohort.broker.transactions.host import TransactionHost
from kohort.groups.consumer.regexes import compile_re2
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.transactions import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicResponse,
    TransactionState,
)

if TYPE_CHECKING:
    import re2

PATTERN_BYTES_MAX: Final = 1 << 18
"""Memory limit of a compiled pattern, in which RE2 expands repetitions. It also limits the matching
steps per character to some ten thousand."""


def _check_partitions(_ctx: RequestContext, request: DescribeProducersRequest) -> None:
    check_repeats(
        (topic.name, index) for topic in request.topics for index in topic.partition_indexes
    )


@handles(
    DescribeProducersRequest,
    versions="0",
    on_error=OnError(
        per_partition(same("name"), {"partition_index": ITSELF}, requested="partition_indexes")
    ),
    parts=(lists("topics.partition_indexes", "topics.partitions"),),
    prepare=_check_partitions,
)
def describe_producers(
    ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    _check_partitions(ctx, request)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe_partition(ctx, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_partition(ctx: RequestContext, name: str, index: int) -> PartitionResponse:
    error, message, producers = ErrorCode.NONE, None, list[ProducerState]()
    problem = name_problem(name)
    try:
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        ctx.require(Operation.READ, ResourceType.TOPIC, name)
        producers = _producers(ctx, name, index)
    except KafkaError as failure:
        error, message = failure.code, failure.message
    return PartitionResponse(
        partition_index=index,
        error_code=error,
        error_message=message,
        active_producers=producers,
    )


def _producers(ctx: RequestContext, name: str, index: int) -> list[ProducerState]:
    topics = ctx.broker.topics
    topic = topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition here")
    if not topics.is_on_disk(name, index):
        return []
    return [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_transaction_first_offset,
        )
        for producer in topic.partitions[index].producers_seen()
    ]


@handles(ListTransactionsRequest, versions="0-2")
async def list_transactions(
    ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List transactions in arbitrary order, in time slices."""
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    pattern, duration_ms = _pattern(request.transactional_id_pattern), request.duration_filter
    host = ctx.broker.transactions.host
    wall_ms = ctx.broker.clock.wall_ms()
    listed: list[TransactionState] = []
    time_slice = Slice(ctx.broker.clock)
    for name in host.ids.names():
        await time_slice.pause()
        transaction = host.transactional_id(name)
        record = None if transaction is None else transaction.record
        if record is None or (states and record.state.value not in states):
            continue
        if producer_ids and record.producer_id not in producer_ids:
            continue
        # The duration counts from the start of the last transaction, even if that has ended.
        if duration_ms >= 0 and wall_ms - record.start_ms <= duration_ms:
            continue
        if pattern is not None and pattern.fullmatch(name) is None:
            continue
        if not ctx.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
            continue
        listed.append(
            TransactionState(
                transactional_id=name,
                producer_id=record.producer_id,
                transaction_state=record.state.value,
            )
        )
    known = {state.value for state in State}
    unknown = dict.fromkeys(name for name in request.state_filters if name not in known)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=list(unknown),
        transaction_states=listed,
    )


def _pattern(text: str | None) -> "re2._Regexp[str] | None":
    """Compile the pattern for ids, None if empty. Raises KafkaError: INVALID_REGULAR_EXPRESSION."""
    if not text:
        return None
    try:
        return compile_re2(text, PATTERN_BYTES_MAX)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def _check(_ctx: RequestContext, request: DescribeTransactionsRequest) -> None:
    check_repeats(request.transactional_ids)


@handles(
    DescribeTransactionsRequest,
    versions="0",
    on_error=OnError(
        elements("transaction_states", "transactional_ids", {"transactional_id": ITSELF})
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


def _describe(ctx: RequestContext, host: TransactionHost, name: str) -> DescribedTransaction:
    error = host.error(name)
    if not ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    transaction = None if error else host.transactional_id(name)
    if transaction is None or transaction.record is None:
        return DescribedTransaction(
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
    return DescribedTransaction(
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
