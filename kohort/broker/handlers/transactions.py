"""InitProducerId (key 22): assign a producer id for idempotence, or for a transactional id.

v0-5. Without a transactional id every request gets a new id at epoch 0; an id is never assigned
twice, even after a crash. With a transactional id the producer gets the next epoch of that id, and
any open transaction of a previous instance is aborted. From v3 a producer may name its current
epoch (KIP-360); PRODUCER_FENCED is used from v4 (KIP-588). If transactions are disabled, a
transactional id is answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which producers report at once,
rather than an error that they would retry for ever. Two-phase commit (v6, KIP-939) is not
supported.

AddPartitionsToTxn (key 24): add partitions to a transaction before its first record in them.

v0-5. Up to v3 a request is for one transaction: all of its partitions are added or none,
PRODUCER_FENCED is used from v2 (KIP-588), and a request without topics begins a transaction, too.
From v4 a request is for several transactions, and brokers may use it to verify whether partitions
are included (KIP-890). This broker needs no such requests, but supports v4 and v5 because Kafka
advertises them to every client. A request without transactions is answered, unlike in Kafka.

AddOffsetsToTxn (key 25): add the offsets of a group to a transaction (KIP-98).

v0-4. PRODUCER_FENCED from v2 (KIP-588). Adds the partition of __consumer_offsets to which the group
belongs; the group need not exist. TxnOffsetCommit v5 does the same by itself.

EndTxn (key 26): commit or abort a transaction (KIP-98).

v0-5. PRODUCER_FENCED from v2 (KIP-588). From v5 the end raises the producer's epoch, and the
response has the producer id and epoch of the next transaction (KIP-890). The response is sent when
the outcome is stored and visible to readers, and all markers that need an fsync are on disk.
Kafka responds before it writes the markers. The rules are in
:mod:`kohort.broker.core.transaction.rules`.
"""

from collections.abc import Callable, Iterable
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.core.transaction.requests import (
    AddRequest,
    ClientVersion,
    EndRequest,
    EndResult,
    InitRequest,
    InitResult,
    TopicPartition,
)
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.in_transaction import fenced_in
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.topics.names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kohort.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kohort.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kohort.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.protocol.records.control import ControlType

INIT_FENCED_SINCE: Final = 4


@handles(InitProducerIdRequest, versions="0-5", on_error=OnError(producer_id=-1, producer_epoch=-1))
def init_producer_id(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Deferred[InitProducerIdResponse]:
    """Assign a producer id and its epoch."""
    _check_allowed(ctx, request.transactional_id)
    if request.transactional_id == "":
        return _error(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _of_transactional_id(ctx, request, request.transactional_id)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error(ErrorCode.INVALID_REQUEST)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=ctx.broker.topics.next_producer_id(),
        producer_epoch=0,
    )


def _check_allowed(ctx: RequestContext, transactional_id: str | None) -> None:
    """Raise KafkaError unless the principal may get a producer id. Without a transactional id, it
    needs permission to write to any topic.
    """
    if transactional_id is not None:
        ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not (
        ctx.sees(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
        or ctx.may_some(Operation.WRITE, ResourceType.TOPIC)
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _of_transactional_id(
    ctx: RequestContext, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse | Deferred[InitProducerIdResponse]:
    init = InitRequest(
        request.transaction_timeout_ms, request.producer_id, request.producer_epoch, ctx.client
    )
    version = ctx.api_version

    def respond(result: InitResult) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            error_code=fenced_in(version, result.error, since=INIT_FENCED_SINCE),
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
        )

    return ctx.broker.transactions.init_producer_id(transactional_id, init).map(respond)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


FENCED_SINCE: Final = 2
SEVERAL_SINCE: Final = 4


@handles(
    AddPartitionsToTxnRequest,
    versions="0-5",
    on_error=OnError(
        elements(
            "results_by_topic_v3_and_below.results_by_partition",
            "v3_and_below_topics.partitions",
            same("name"),
            {"partition_index": ITSELF},
            error="partition_error_code",
        )
    ),
)
async def add_partitions_to_txn(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if ctx.api_version >= SEVERAL_SINCE:
        ctx.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        return await _several(ctx, request)
    name = request.v3_and_below_transactional_id
    ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    time_slice = Slice(ctx.broker.clock)
    topics = request.v3_and_below_topics
    refusals = await run(_refusals(ctx, topics, allows_internal=False), time_slice)
    if refusals:
        results = _refused(topics, refusals)
    else:
        error = fenced_in(ctx.api_version, await _add(ctx, request), since=FENCED_SINCE)
        results = _results(topics, lambda _: error)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await run(results, time_slice))


def _add(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> Deferred[ErrorCode]:
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


def _each_once(topics: Iterable[AddPartitionsToTxnTopic]) -> list[AddPartitionsToTxnTopic]:
    """Remove duplicate partitions from a request that only verifies partitions, as Kafka does. In a
    request that adds partitions, Kafka keeps duplicates.
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
    """Return the refused partitions with their errors. If there are any, no partition is added."""
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
    """Return a result for each named partition, repeated if the request repeats the partition."""
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


@handles(AddOffsetsToTxnRequest, versions="0-4")
def add_offsets_to_txn(
    ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Deferred[AddOffsetsToTxnResponse]:
    """Add the group's partition of __consumer_offsets; answered when the addition is durable."""
    ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    ctx.require(Operation.READ, ResourceType.GROUP, request.group_id)
    index = ctx.broker.groups.offsets_partition(request.group_id)
    add = AddRequest(
        request.producer_id,
        request.producer_epoch,
        (TopicPartition(CONSUMER_OFFSETS, index),),
        ClientVersion.V1,
        ctx.client,
    )
    version = ctx.api_version

    def respond(error: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=fenced_in(version, error, since=FENCED_SINCE))

    return ctx.broker.transactions.add_partitions(request.transactional_id, add).map(respond)


RAISES_EPOCH_SINCE: Final = 5


@handles(EndTxnRequest, versions="0-5")
def end_txn(
    ctx: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | Deferred[EndTxnResponse]:
    """Commit or abort; respond when the outcome is stored, from v5 with the next producer epoch."""
    ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    version = ctx.api_version
    raises_epoch = version >= RAISES_EPOCH_SINCE
    end = EndRequest(
        request.producer_id,
        request.producer_epoch,
        ControlType.COMMIT if request.committed else ControlType.ABORT,
        ClientVersion.V2 if raises_epoch else ClientVersion.V1,
    )

    def respond(result: EndResult) -> EndTxnResponse:
        return EndTxnResponse(
            error_code=fenced_in(version, result.error, since=FENCED_SINCE),
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
        )

    return ctx.broker.transactions.end(request.transactional_id, end).map(respond)
