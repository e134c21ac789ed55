"""InitProducerId (key 22): an id for an idempotent producer.

v0-5. Without a transactional id every request gets a fresh id at epoch 0; an id is never given out
twice, not even across a crash. Transactions are not served yet: a transactional id is answered
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which producers report at once, rather than an error that
they would retry for ever.
"""

from __future__ import annotations

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@handles(InitProducerIdRequest, versions="0-5", on_error=OnError(producer_id=-1, producer_epoch=-1))
def init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Hand out the next producer id."""
    if request.transactional_id == "":
        return _error(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error(ErrorCode.INVALID_REQUEST)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=ctx.broker.topics.next_producer_id(),
        producer_epoch=0,
    )


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
