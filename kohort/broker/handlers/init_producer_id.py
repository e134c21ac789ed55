"""InitProducerId (key 22): assign a producer id for idempotence, or for a transactional id.

v0-5. Without a transactional id every request gets a new id at epoch 0; an id is never assigned
twice, even after a crash. With one the producer gets its id's next epoch, and any open transaction
of a previous instance is aborted. From v3 a producer may name its current epoch (KIP-360);
PRODUCER_FENCED is used from v4 (KIP-588). If transactions are disabled, a transactional id is
answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which producers report at once, rather than an error
that they would retry for ever. Two-phase commit (v6, KIP-939) is not supported. The rules are in
:mod:`kohort.broker.core.transaction.rules`.
"""

from typing import Final

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.core.transaction.requests import InitRequest, InitResult
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.in_transaction import fenced_in
from kohort.broker.runtime.deferred import Deferred
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE: Final = 4


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
            error_code=fenced_in(version, result.error, since=FENCED_SINCE),
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
        )

    return ctx.broker.transactions.init_producer_id(transactional_id, init).map(respond)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
