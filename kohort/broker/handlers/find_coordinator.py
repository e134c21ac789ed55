"""FindCoordinator (key 10): the coordinator of a group or transaction, which is always this broker.

v1 key type; v2 answers before throttling; v3 flexible; v4 several keys (KIP-699); v5 transaction
errors of KIP-890; v6 share groups (KIP-932), which are not supported. Transactional ids are
answered even if transactions are not supported, so that InitProducerId can report that.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.access import DENIED
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, Mirror, OnError
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP: Final = 0
TRANSACTION: Final = 1
_KINDS: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
SEVERAL_KEYS_SINCE: Final = 4


@handles(
    FindCoordinatorRequest,
    versions="0-6",
    on_error=OnError(
        Mirror(
            response="coordinators",
            request="coordinator_keys",
            copied={"key": ITSELF},
            values={"node_id": -1},
        ),
        node_id=-1,
        port=-1,
    ),
)
def find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Answer each key."""
    several = ctx.api_version >= SEVERAL_KEYS_SINCE
    if several:
        found = [_find(ctx, key, request.key_type) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    if ctx.broker.access is not None and request.key_type in _KINDS:
        ctx.require(Operation.DESCRIBE, _KINDS[request.key_type], request.key)
    only = _find(ctx, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=only.error_code,
        # Kafka's own text for success.
        error_message=only.error_message or "NONE",
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(ctx: RequestContext, key: str, key_type: int) -> Coordinator:
    if key_type not in _KINDS:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Keys of type {key_type} have no coordinator here.",
        )
    kind = _KINDS[key_type]
    if not ctx.may(Operation.DESCRIBE, kind, key):
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=DENIED[kind], error_message=""
        )
    host, port = ctx.advertised
    return Coordinator(
        key=key,
        node_id=ctx.broker.node_id,
        host=host,
        port=port,
        error_code=ErrorCode.NONE,
        error_message="",
    )
