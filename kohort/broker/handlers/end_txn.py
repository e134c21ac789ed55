"""EndTxn (key 26): commit or abort a transaction (KIP-98).

v0-5. PRODUCER_FENCED from v2 (KIP-588). From v5 the end raises the producer's epoch, and the
response has the producer id and epoch of the next transaction (KIP-890). The response is sent when
the outcome is decided and visible to readers; if a marker has to be forced to disk, after that.
Kafka responds before it writes the markers. The rules are in
:mod:`kohort.broker.core.transaction.rules`.
"""

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.transaction.requests import ClientVersion, EndRequest, EndResult
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.transactional_producer import fenced_in
from kohort.broker.runtime.deferred import Deferred
from kohort.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kohort.protocol.records.control import ControlType

FENCED_SINCE: Final = 2
RAISES_EPOCH_SINCE: Final = 5


@handles(EndTxnRequest, versions="0-5")
def end_txn(
    ctx: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | Deferred[EndTxnResponse]:
    """End the transaction; answered when the outcome is decided,
    with the next epoch if requested.
    """
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
