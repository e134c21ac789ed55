"""AddOffsetsToTxn (key 25): add the offsets of a group to a transaction (KIP-98).

v0-4. PRODUCER_FENCED from v2 (KIP-588). Adds the partition of __consumer_offsets to which the group
belongs; the group need not exist. TxnOffsetCommit v5 does the same by itself.
"""

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.transaction.requests import AddRequest, ClientVersion, TopicPartition
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.transactional_producer import fenced_in
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

FENCED_SINCE: Final = 2


@handles(AddOffsetsToTxnRequest, versions="0-4")
def add_offsets_to_txn(
    ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Deferred[AddOffsetsToTxnResponse]:
    """Add the partition; answered when that is durable."""
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
