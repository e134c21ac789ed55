"""LeaveGroup (key 13): members leave immediately instead of timing out.

v0-5. v3 several members, also by instance id, each with its own error; v4 flexible; v5 a reason as
text. The rules are in :mod:`kohort.groups.classic.leave`.
"""

from functools import partial
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.requests import LeaveEntry, LeaveResult
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

SEVERAL_MEMBERS_SINCE: Final = 3

PART_MAX: Final = 5_000
"""Members that leave in one step, which causes one rebalance; few groups have more."""


@handles(LeaveGroupRequest, versions="0-5", parts=(lists("members"),), part_max=PART_MAX)
def leave_group(
    ctx: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Deferred[LeaveGroupResponse]:
    """Remove members; one result each, in the order of the request. Before v3 there is only one."""
    ctx.require(Operation.READ, ResourceType.GROUP, request.group_id)
    several = ctx.api_version >= SEVERAL_MEMBERS_SINCE
    members = request.members if several else [MemberIdentity(member_id=request.member_id)]
    # Requests with several members are from administrators, who fetch nothing.
    client = ctx.header.client_id or "", ctx.connection.peer_host
    unfetched_ms = ctx.broker.activity.since_ms(*client) if len(members) == 1 else None
    ticket = ctx.broker.classic_groups.leave(
        request.group_id,
        [
            LeaveEntry(member.member_id, member.group_instance_id, member.reason, unfetched_ms)
            for member in members
        ],
    )
    return ticket.map(partial(_respond_for_several, members) if several else _respond_for_one)


def _respond_for_one(result: LeaveResult) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=result.error or result.entries[0])


def _respond_for_several(members: list[MemberIdentity], result: LeaveResult) -> LeaveGroupResponse:
    if result.error:
        return LeaveGroupResponse(error_code=result.error)
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=error,
            )
            for member, error in zip(members, result.entries, strict=True)
        ],
    )
