"""Heartbeat (key 12): a member says that it is alive and learns of rebalances.

v0-4. v3 instance id, v4 flexible. Never waits, and in a stable group touches no timer.
"""

from __future__ import annotations

from broker.handlers.context import RequestContext
from broker.handlers.registry import handles
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest, versions="0-4")
def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """REBALANCE_IN_PROGRESS while joins are collected."""
    return HeartbeatResponse(
        error_code=ctx.broker.groups.heartbeat(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
        )
    )
