"""FindCoordinator (key 10): the coordinator of a group or transaction, which is always this broker.

As in Kafka, the first request creates __consumer_offsets or __transaction_state, so these topics
exist before a group commits or a transaction begins. Kafka answers COORDINATOR_NOT_AVAILABLE until
the topic exists; here the response waits for it.
"""

import re
from collections.abc import Awaitable, Sequence
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.access import denied
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.deferred import Deferred
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE_PARTITION: Final = 2
_KINDS: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
SEVERAL_KEYS_SINCE: Final = 4
SHARE_PARTITIONS_SINCE: Final = 6
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")
_PARTITION: Final = re.compile(r"[-+]?[0-9]{1,10}")


@handles(
    FindCoordinatorRequest,
    versions="0-6",
    on_error=OnError(
        elements("coordinators", "coordinator_keys", {"key": ITSELF}, node_id=-1, port=-1),
        node_id=-1,
        port=-1,
    ),
    parts=(lists("coordinator_keys", "coordinators"),),
)
def find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Deferred[FindCoordinatorResponse]:
    """Answer each key; wait only if the coordinator's topic has to be created."""
    keys = request.coordinator_keys
    if ctx.api_version < SEVERAL_KEYS_SINCE:
        keys = [request.key]
        if request.key_type in _KINDS:
            ctx.require(Operation.DESCRIBE, _KINDS[request.key_type], request.key)
    if request.key_type == SHARE_PARTITION and ctx.api_version >= SHARE_PARTITIONS_SINCE:
        ctx.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        return _respond(ctx, [_find_share_partition(ctx, key) for key in keys])
    results = [_find(ctx, key, request.key_type) for key in keys]
    if any(not coordinator.error_code for coordinator in results):
        coordinators = ctx.broker.groups if request.key_type == GROUP else ctx.broker.transactions
        preparing = coordinators.host.prepare_log()
        if preparing is not None:
            return ctx.run(
                _respond_when(preparing, ctx, results), name="create a coordinator's log"
            )
    return _respond(ctx, results)


async def _respond_when(
    preparing: Awaitable[None], ctx: RequestContext, results: Sequence[Coordinator]
) -> FindCoordinatorResponse:
    try:
        await preparing
    except KafkaError as error:
        for coordinator in results:
            if not coordinator.error_code:
                coordinator.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                coordinator.error_message = str(error)
                coordinator.node_id = coordinator.port = -1
                coordinator.host = ""
    return _respond(ctx, results)


def _respond(ctx: RequestContext, results: Sequence[Coordinator]) -> FindCoordinatorResponse:
    if ctx.api_version >= SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=list(results))
    (only,) = results
    return FindCoordinatorResponse(
        error_code=only.error_code,
        # As in Kafka, the message is the text "NONE" if there is no error.
        error_message=only.error_message or "NONE",
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(ctx: RequestContext, key: str, key_type: int) -> Coordinator:
    if key_type not in _KINDS:
        text = f"Keys of type {key_type} have no coordinator here."
        return _failed(key, ErrorCode.INVALID_REQUEST, text)
    kind = _KINDS[key_type]
    if not ctx.may(Operation.DESCRIBE, kind, key):
        return _failed(key, denied(kind).code, "")
    return _this_broker(ctx, key)


def _find_share_partition(ctx: RequestContext, key: str) -> Coordinator:
    """Find the coordinator of `group:topic id:partition`; the group id may contain colons."""
    group_id, *rest = key.rsplit(":", 2)
    if (
        not group_id.strip()
        or len(rest) != 2
        or _TOPIC_ID.fullmatch(rest[0]) is None
        or _PARTITION.fullmatch(rest[1]) is None
        or not -(2**31) <= int(rest[1]) < 2**31
    ):
        return _failed(key, ErrorCode.INVALID_REQUEST, "")
    return _this_broker(ctx, key)


def _this_broker(ctx: RequestContext, key: str) -> Coordinator:
    host, port = ctx.advertised
    return Coordinator(
        key=key,
        node_id=ctx.broker.node_id,
        host=host,
        port=port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _failed(key: str, error: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=text)
