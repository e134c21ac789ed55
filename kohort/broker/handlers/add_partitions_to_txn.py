"""AddPartitionsToTxn (key 24): add partitions to a transaction before its first record in them.

v0-5. Up to v3 one transaction: all of its partitions are added or none, PRODUCER_FENCED from v2
(KIP-588), and a request without topics begins a transaction all the same. From v4 several
transactions, for which brokers may also verify whether partitions are included (KIP-890); here that
is not needed, but these versions are supported because Kafka advertises them to every client. A
request without transactions is answered, unlike in Kafka.
"""

from collections.abc import Callable, Iterable
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.transaction.requests import AddRequest, ClientVersion, TopicPartition
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, ErrorTemplate, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.transactional_producer import fenced_in
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.topics.names import INTERNAL_TOPICS
from kohort.groups.steps import Steps, at_once
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FENCED_SINCE: Final = 2
SEVERAL_SINCE: Final = 4


@handles(
    AddPartitionsToTxnRequest,
    versions="0-5",
    on_error=OnError(
        ErrorTemplate(
            response="results_by_topic_v3_and_below",
            request="v3_and_below_topics",
            copied=same("name"),
            inner=ErrorTemplate(
                response="results_by_partition",
                request="partitions",
                copied={"partition_index": ITSELF},
                error="partition_error_code",
            ),
        )
    ),
)
def add_partitions_to_txn(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Deferred[AddPartitionsToTxnResponse]:
    """Add the partitions; answered when that is durable."""
    several = ctx.api_version >= SEVERAL_SINCE
    if several:
        ctx.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    else:
        name = request.v3_and_below_transactional_id
        ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    if several:
        return ctx.run(_several(ctx, request), name="AddPartitionsToTxn")
    if ctx.is_long:
        return ctx.run(_long(ctx, request), name="AddPartitionsToTxn")
    topics = request.v3_and_below_topics
    refusals = at_once(_refusals(ctx, topics, allows_internal=False))
    if refusals:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=at_once(_refused(topics, refusals)),
        )
    version = ctx.api_version

    def respond(error: ErrorCode) -> AddPartitionsToTxnResponse:
        code = fenced_in(version, error, since=FENCED_SINCE)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=at_once(_results(topics, lambda _: code))
        )

    return _add(ctx, request).map(respond)


def _add(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> Deferred[ErrorCode]:
    """Add the partitions of a request before v4."""
    add = AddRequest(
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        tuple(_places(request.v3_and_below_topics)),
        ClientVersion.V1,
        ctx.client,
    )
    return ctx.broker.transactions.add_partitions(request.v3_and_below_transactional_id, add)


async def _several(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    time_slice = Slice(ctx.broker.clock)
    response = AddPartitionsToTxnResponse()
    for transaction in request.transactions:
        results = await _one_of_several(ctx, transaction, time_slice)
        response.results_by_transaction.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=results
            )
        )
        await time_slice.pause()
    return response


async def _one_of_several(
    ctx: RequestContext, transaction: AddPartitionsToTxnTransaction, time_slice: Slice
) -> list[AddPartitionsToTxnTopicResult]:
    transactions = ctx.broker.transactions
    refusals = await run(_refusals(ctx, transaction.topics, allows_internal=True), time_slice)
    if refusals:
        return await run(_refused(transaction.topics, refusals), time_slice)
    producer = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        results = _results(
            _each_once(transaction.topics),
            lambda place: transactions.verify_only(transaction.transactional_id, *producer, place),
        )
        return await run(results, time_slice)
    request = AddRequest(
        *producer, tuple(_places(transaction.topics)), ClientVersion.V2, ctx.client
    )
    error = await transactions.add_partitions(transaction.transactional_id, request)
    return await run(_results(transaction.topics, lambda _: error), time_slice)


async def _long(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Serve a long request before v4 in slices."""
    time_slice = Slice(ctx.broker.clock)
    topics = request.v3_and_below_topics
    refusals = await run(_refusals(ctx, topics, allows_internal=False), time_slice)
    if refusals:
        results = _refused(topics, refusals)
    else:
        error = fenced_in(ctx.api_version, await _add(ctx, request), since=FENCED_SINCE)
        results = _results(topics, lambda _: error)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await run(results, time_slice))


def _each_once(topics: Iterable[AddPartitionsToTxnTopic]) -> list[AddPartitionsToTxnTopic]:
    """Remove duplicates from a verification: Kafka answers each partition once, but additions as
    often as they are named.
    """
    merged: dict[str, dict[int, None]] = {}
    for topic in topics:
        merged.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return [
        AddPartitionsToTxnTopic(name=name, partitions=list(indexes))
        for name, indexes in merged.items()
    ]


def _places(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _refusals(
    ctx: RequestContext, topics: Iterable[AddPartitionsToTxnTopic], *, allows_internal: bool
) -> Steps[dict[TopicPartition, ErrorCode]]:
    """Return the partitions whose refusal prevents adding the others."""
    refusals: dict[TopicPartition, ErrorCode] = {}
    for place in _places(topics):
        topic = ctx.broker.topics.get(place.topic)
        is_denied = not allows_internal and (
            place.topic in INTERNAL_TOPICS
            or not ctx.may(Operation.WRITE, ResourceType.TOPIC, place.topic)
        )
        if is_denied:
            refusals[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= place.partition < len(topic.partitions):
            refusals[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield
    return refusals


def _refused(
    topics: Iterable[AddPartitionsToTxnTopic], refusals: dict[TopicPartition, ErrorCode]
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    named = [topic for topic in topics if topic.partitions]
    return _results(named, lambda place: refusals.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED))


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], error_of: Callable[[TopicPartition], ErrorCode]
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    """Return one result for each partition, as often as it was named."""
    results = []
    for topic in topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[])
        results.append(result)
        for index in topic.partitions:
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=error_of(TopicPartition(topic.name, index)),
                )
            )
            yield
    return results
