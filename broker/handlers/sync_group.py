"""SyncGroup (key 14): the leader hands in the assignment, everybody gets its part.

v0-5. v3 instance id, v4 flexible, v5 protocol type and name in both directions. The rules are in
:mod:`broker.core.group.sync`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.core.group.requests import SyncRequest, SyncResult
from broker.handlers.context import RequestContext
from broker.handlers.registry import handles
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED_SINCE: Final = 5


@handles(SyncGroupRequest, versions="0-5")
def sync_group(
    ctx: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
    """Held back until the leader has handed in the assignment and it is durable."""
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if ctx.api_version >= PROTOCOL_REQUIRED_SINCE and not names_protocol:
        return _respond(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    ticket = ctx.broker.groups.sync(
        request.group_id,
        SyncRequest(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={share.member_id: share.assignment for share in request.assignments},
        ),
    )
    return ticket.then(_respond)


def _respond(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
