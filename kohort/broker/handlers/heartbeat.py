"""Heartbeat (key 12): a member keeps its session alive and learns of rebalances.

v0-4. v3 instance id, v4 flexible. Never waits, and changes no timer in a stable group.
"""

from functools import cache
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.registry import handles
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

_READ: Final = Operation.READ
_GROUP: Final = ResourceType.GROUP


@handles(HeartbeatRequest, versions="0-4")
def heartbeat(
    ctx: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | EncodedResponse:
    """Process a heartbeat: REBALANCE_IN_PROGRESS while joins are collected."""
    ctx.require(_READ, _GROUP, request.group_id)
    error = ctx.broker.classic_groups.heartbeat(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
    )
    return HeartbeatResponse(error_code=error) if error else _all_is_well(ctx.api_version)


@cache
def _all_is_well(version: int) -> EncodedResponse:
    """The response without an error, shared by nearly all heartbeats."""
    return EncodedResponse(
        codec(HeartbeatResponse, version).encode(HeartbeatResponse(error_code=ErrorCode.NONE))
    )
