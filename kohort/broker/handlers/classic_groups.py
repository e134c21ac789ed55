"""JoinGroup (key 11): join, or rejoin, a group's next generation.
SyncGroup (key 14): the leader submits the assignment, every member gets its part.
Heartbeat (key 12): a member keeps its session alive and learns of rebalances. Never waits, and
changes no timer in a stable group.
LeaveGroup (key 13): members leave immediately instead of timing out.

The rules are in :mod:`kohort.groups.classic`; :mod:`kohort.protocol.messages.membership` describes
what each version adds.
"""

from functools import cache, partial
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import OnError
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.reasons import state_reason
from kohort.groups.requests import (
    JoinRequest,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    SyncRequest,
    SyncResult,
)
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

REBALANCE_TIMEOUT_SINCE: Final = 1
MEMBER_ID_REQUIRED_SINCE: Final = 4
NULL_PROTOCOL_NAME_SINCE: Final = 7
SKIP_ASSIGNMENT_SINCE: Final = 9


@handles(JoinGroupRequest, versions="0-9", on_error=OnError(generation_id=-1))
def join_group(
    ctx: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
    """Process a JoinGroup; usually answered at the end of the rebalance's join phase."""
    version = ctx.api_version
    if not ctx.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return RESPONDERS[version](JoinResult(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    group_id, former_member_id = ctx.connection.group_member
    ticket = ctx.broker.classic_groups.join(
        request.group_id,
        JoinRequest(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=ctx.header.client_id or "",
            client_host=ctx.connection.peer_host,
            former_member_id=former_member_id if group_id == request.group_id else "",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms
                if version >= REBALANCE_TIMEOUT_SINCE
                else request.session_timeout_ms
            ),
            protocol_type=request.protocol_type,
            protocols=tuple([(offer.name, offer.metadata) for offer in request.protocols]),
            requires_known_id=version >= MEMBER_ID_REQUIRED_SINCE,
            can_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
            reason=state_reason(request.join_reason, request.reason),
            client_software=ctx.connection.client_software,
        ),
    )
    return ticket.map(RESPONDERS[version])


def _respond(version: int, result: JoinResult) -> JoinGroupResponse:
    name = result.protocol_name
    if name is None and version < NULL_PROTOCOL_NAME_SINCE:
        name = ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=result.members,
    )


RESPONDERS: Final = tuple([partial(_respond, version) for version in range(10)])
"""The function that creates a JoinGroup response, by version. Not created per request, because a
rebalance may answer thousands of requests at once."""


PROTOCOL_REQUIRED_SINCE: Final = 5


@handles(SyncGroupRequest, versions="0-5")
def sync_group(
    ctx: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    """Process a SyncGroup; answered when the leader's assignment is durable."""
    version = ctx.api_version
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if version >= PROTOCOL_REQUIRED_SINCE and not names_protocol:
        return _respond_to_sync(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    ctx.require(Operation.READ, ResourceType.GROUP, request.group_id)
    ctx.connection.group_member = (request.group_id, request.member_id)
    result = ctx.broker.classic_groups.sync(
        request.group_id,
        SyncRequest(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {share.member_id: share.assignment for share in request.assignments},
        ),
    )
    if isinstance(result, Deferred):
        return result.map(_respond_to_sync)
    return _respond_to_sync(result)


def _respond_to_sync(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


_READ: Final = Operation.READ
_GROUP: Final = ResourceType.GROUP


@handles(HeartbeatRequest, versions="0-4")
def heartbeat(
    ctx: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | EncodedResponse:
    """Process a heartbeat; answer REBALANCE_IN_PROGRESS during the join phase."""
    ctx.require(_READ, _GROUP, request.group_id)
    error = ctx.broker.classic_groups.heartbeat(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        ctx.connection,
    )
    return HeartbeatResponse(error_code=error) if error else _all_is_well(ctx.api_version)


@cache
def _all_is_well(version: int) -> EncodedResponse:
    """The response without an error, shared by nearly all heartbeats."""
    return EncodedResponse(
        codec(HeartbeatResponse, version).encode(HeartbeatResponse(error_code=ErrorCode.NONE))
    )


SEVERAL_MEMBERS_SINCE: Final = 3

PART_MAX: Final = 5_000
"""Maximum members removed in one step, which causes one rebalance; requests for more are split."""


@handles(LeaveGroupRequest, versions="0-5", parts=(lists("members"),), part_max=PART_MAX)
def leave_group(
    ctx: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Deferred[LeaveGroupResponse]:
    """Remove members; return one result each, in the order of the request. Before v3 a request
    names one member.
    """
    ctx.require(Operation.READ, ResourceType.GROUP, request.group_id)
    several = ctx.api_version >= SEVERAL_MEMBERS_SINCE
    members = request.members if several else [MemberIdentity(member_id=request.member_id)]
    # A request for several members comes from an admin client, whose last fetch and connection are
    # not those of the members.
    client = ctx.header.client_id or "", ctx.connection.peer_host
    is_single = len(members) == 1
    unfetched_ms = ctx.broker.activity.since_ms(*client) if is_single else None
    connection = ctx.connection if is_single else None
    ticket = ctx.broker.classic_groups.leave(
        request.group_id,
        [
            LeaveEntry(
                member.member_id,
                member.group_instance_id,
                member.reason,
                unfetched_ms,
                connection,
            )
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
