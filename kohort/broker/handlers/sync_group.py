"""SyncGroup (key 14): the leader submits the assignment, every member gets its part.

v0-5. v3 instance id, v4 flexible, v5 protocol type and name in both directions. The rules are in
:mod:`kohort.groups.classic.sync`.
"""

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.requests import SyncRequest, SyncResult
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED_SINCE: Final = 5


@handles(SyncGroupRequest, versions="0-5")
def sync_group(
    ctx: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    """Sync; answered when the leader's assignment is durable."""
    version = ctx.api_version
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if version >= PROTOCOL_REQUIRED_SINCE and not names_protocol:
        return _respond(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    ctx.require(Operation.READ, ResourceType.GROUP, request.group_id)
    ticket = ctx.broker.classic_groups.sync(
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
    return ticket.map(_respond)


def _respond(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
