"""TxnOffsetCommit (key 28): commit offsets as part of a producer's transaction (KIP-98).

v0-6. v3 has the member id and generation (KIP-447). v4 may answer TRANSACTION_ABORTABLE. v5 adds
the group's partition of __consumer_offsets to the transaction; earlier versions need
AddOffsetsToTxn for this (KIP-890). v6 has topic ids instead of names. Partitions that do not exist
are answered here; the transaction is checked next, and the group last, by the rules in
:mod:`kohort.groups.offsets.commit`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.transaction.requests import TopicPartition
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import BY_NAME_OR_ID, OnError, per_partition, same
from kohort.broker.dispatch.parts import parts_of
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.committed_topics import look_up
from kohort.broker.handlers.shared.in_transaction import ClientError, Flow, TransactionalProducer
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.groups.requests import CommitRequest, EnclosingTransaction, OffsetToCommit
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ABORTABLE_SINCE: Final = 4
ADDS_SINCE: Final = 5
TOPIC_IDS_SINCE: Final = 6
GROUP_ID_NOT_FOUND_SINCE: Final = 6
PART_MAX: Final = 500
"""Maximum offsets that are looked up, or committed by the group, in one step."""

_NOT_IN_TRANSACTION: Final = (
    ClientError(ErrorCode.TRANSACTION_ABORTABLE, since=ABORTABLE_SINCE),
    ClientError(ErrorCode.INVALID_TXN_STATE),
)

FLOW: Final = Flow(
    ADDS_SINCE,
    {
        ErrorCode.INVALID_TXN_STATE: _NOT_IN_TRANSACTION,
        ErrorCode.TRANSACTION_ABORTABLE: _NOT_IN_TRANSACTION,
        ErrorCode.PRODUCER_FENCED: (ClientError(ErrorCode.INVALID_PRODUCER_EPOCH),),
    },
)


@handles(
    TxnOffsetCommitRequest,
    versions="0-6",
    on_error=OnError(per_partition(BY_NAME_OR_ID, same("partition_index"))),
)
async def txn_offset_commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit offsets; answered when those that could be stored are durable."""
    ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    ctx.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    version = ctx.api_version
    offsets: list[OffsetToCommit] = []
    refusals: list[ErrorCode] = []
    time_slice = Slice(ctx.broker.clock)
    for part, _ in parts_of(request, ("topics", "partitions"), PART_MAX):
        for topic in part.topics:
            look_up(ctx, topic, offsets, refusals, by_id=version >= TOPIC_IDS_SINCE)
        await time_slice.pause()
    if not offsets:
        return await run(_respond(request, refusals), time_slice)
    groups = ctx.broker.groups
    places = [TopicPartition(CONSUMER_OFFSETS, groups.offsets_partition(request.group_id))]
    producer = TransactionalProducer(
        ctx.broker.transactions,
        FLOW,
        version,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        ctx.client,
    )
    try:
        await _put_into_transaction(producer, places)
    except KafkaError as error:
        if not any(refusals):
            raise
        errors = [refusal or error.code for refusal in refusals]
        return await run(_respond(request, errors), time_slice)
    decided: list[ErrorCode] = []
    for first in range(0, len(offsets), PART_MAX):
        result = await groups.commit_transactional(
            request.group_id,
            CommitRequest(
                tuple(offsets[first : first + PART_MAX]),
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                generation=request.generation_id_or_member_epoch,
            ),
            EnclosingTransaction(
                request.producer_id, request.producer_epoch, partial(producer.verify, places)
            ),
            may_answer_group_not_found=version >= GROUP_ID_NOT_FOUND_SINCE,
        )
        decided += result.errors
    return await run(_respond(request, refusals, decided), time_slice)


async def _put_into_transaction(
    producer: TransactionalProducer, places: Sequence[TopicPartition]
) -> None:
    """Wait until the partitions are in the transaction. Raises KafkaError."""
    settling = producer.settling()
    if settling is not None:
        await settling
    producer.check(places, adds=producer.adds)
    if not producer.adds:
        return
    try:
        adding = producer.add(places)
        if adding is not None:
            await adding
    except KafkaError as error:
        raise producer.client_error(error.code) from None


def _respond(
    request: TxnOffsetCommitRequest,
    refusals: Sequence[ErrorCode],
    decided: Sequence[ErrorCode] = (),
) -> Steps[TxnOffsetCommitResponse]:
    """Create the response as Kafka does, without topics that have no partitions. If there are
    refusals, refused partitions come first, and each topic has one entry. Otherwise a topic has as
    many entries as in the request.

    Args:
        refusals: one error for each partition; NONE for partitions that were passed to the group.
        decided: the group's results for the partitions with NONE, in order.
    """
    topics: dict[object, TxnOffsetCommitResponseTopic] = {}
    is_merged = any(refusals)
    left = iter(decided)
    for is_refused in (True, False):
        errors = iter(refusals)
        for number, requested in enumerate(request.topics):
            key = (requested.name or requested.topic_id) if is_merged else number
            for partition in requested.partitions:
                error = next(errors)
                if bool(error) is is_refused:
                    topic = topics.get(key)
                    if topic is None:
                        topic = topics[key] = TxnOffsetCommitResponseTopic(
                            name=requested.name, topic_id=requested.topic_id, partitions=[]
                        )
                    answer = TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error or next(left)
                    )
                    topic.partitions.append(answer)
                yield
            yield
    return TxnOffsetCommitResponse(topics=list(topics.values()))
