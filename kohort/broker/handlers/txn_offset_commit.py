"""TxnOffsetCommit (key 28): positions that hold once the producer's transaction commits (KIP-98).

v0-6. v3 names the member and its generation (KIP-447), v4 may say TRANSACTION_ABORTABLE, v5 adds
the group's partition of __consumer_offsets to the transaction, which AddOffsetsToTxn does before it
(KIP-890), v6 topic ids instead of names. Partitions that do not exist are answered here; the
transaction is asked about next, and the group last, whose rules are in
:mod:`kohort.broker.core.group.classic.commit` and :mod:`kohort.broker.core.group.offsets.pending`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kohort.broker.core.group.requests import CommitRequest, OffsetToCommit, OpenTransaction
from kohort.broker.core.transaction.requests import TopicPartition
from kohort.broker.dispatch.context import RequestContext, TransactionKeeper
from kohort.broker.dispatch.failures import BY_NAME_OR_ID, Mirror, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.offset_commit import look_up
from kohort.broker.topics.names import CONSUMER_OFFSETS
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

_NOT_IN_IT: Final = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})


@handles(
    TxnOffsetCommitRequest,
    versions="0-6",
    on_error=OnError(
        Mirror(
            "topics",
            "topics",
            BY_NAME_OR_ID,
            Mirror("partitions", "partitions", same("partition_index")),
        )
    ),
    is_of_transactions=True,
)
async def txn_offset_commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Answered when what could be stored is durable."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    version = ctx.api_version
    offsets: list[OffsetToCommit] = []
    refusals: list[ErrorCode] = []
    for asked in request.topics:
        look_up(ctx, asked, offsets, refusals, by_id=version >= TOPIC_IDS_SINCE)
    if not offsets:
        return _respond(request, refusals)
    keeper = ctx.broker.transactions
    if keeper is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    groups = ctx.broker.groups
    place = TopicPartition(CONSUMER_OFFSETS, groups.offsets_partition(request.group_id))
    asking = _Asking(keeper, request, version, place)
    await asking.pass_or_raise()
    result = await groups.commit_transactional(
        request.group_id,
        CommitRequest(
            tuple(offsets),
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
        ),
        OpenTransaction(request.producer_id, request.producer_epoch, asking.verify),
    )
    decided = iter(result.errors)
    return _respond(request, [refusal or next(decided) for refusal in refusals])


class _Asking(NamedTuple):
    """The questions that this request has for the transactions."""

    keeper: TransactionKeeper
    request: TxnOffsetCommitRequest
    version: int
    place: TopicPartition

    async def pass_or_raise(self) -> None:
        """Return when the partition is in the transaction. Raises KafkaError: it cannot be."""
        adds = self.version >= ADDS_SINCE
        settling = self.keeper.settling(self.request.transactional_id, adds=adds)
        if settling is not None:
            await settling
        error = self.verify(adds=adds)
        if error:
            raise KafkaError(error)
        if not adds:
            return
        request = self.request
        adding = self.keeper.add(
            request.transactional_id, request.producer_id, request.producer_epoch, [self.place]
        )
        if adding is not None:
            await adding

    def verify(self, *, adds: bool = False) -> ErrorCode:
        """NONE, or what is told in this version."""
        request = self.request
        error = self.keeper.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [self.place],
            adds=adds,
        )
        if error in _NOT_IN_IT:
            is_abortable = self.version >= ABORTABLE_SINCE
            return ErrorCode.TRANSACTION_ABORTABLE if is_abortable else ErrorCode.INVALID_TXN_STATE
        is_fenced = error is ErrorCode.PRODUCER_FENCED
        return ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else error


def _respond(
    request: TxnOffsetCommitRequest, errors: Iterable[ErrorCode]
) -> TxnOffsetCommitResponse:
    """`errors` are those of all partitions. What is asked of a topic in several places is answered
    in one; like Kafka, it says nothing of a topic without partitions.
    """
    topics: dict[str | bytes, TxnOffsetCommitResponseTopic] = {}
    left = iter(errors)
    for asked in request.topics:
        if not asked.partitions:
            continue
        topic = topics.setdefault(
            asked.name or asked.topic_id,
            TxnOffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=[]),
        )
        topic.partitions += [
            TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=next(left)
            )
            for partition in asked.partitions
        ]
    return TxnOffsetCommitResponse(topics=list(topics.values()))
