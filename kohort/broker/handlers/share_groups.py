"""ShareGroupHeartbeat (key 76): join, stay in or leave a share group (KIP-932).
ShareGroupDescribe (key 77): state and members of share groups.

v1. The rules of the heartbeat are in :mod:`kohort.groups.share.heartbeat`.
"""

from kohort.broker.coordinator.requests.share import not_found
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import is_member_id
from kohort.broker.handlers.shared.described_groups import (
    MESSAGE_CHARS,
    assignment_of,
    describe_each,
    described_assignment,
    description_error,
)
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.member_sessions import HeartbeatResult
from kohort.groups.share import assignor
from kohort.groups.share.data import ShareData, ShareMember
from kohort.groups.share.membership import ShareMembership
from kohort.groups.share.requests import ShareHeartbeatRequest
from kohort.groups.steps import FEW, Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kohort.protocol.messages.share_group_describe import Member as DescribedMember
from kohort.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


@handles(
    ShareGroupHeartbeatRequest,
    versions="1",
    on_error=OnError(member_epoch=0, heartbeat_interval_ms=0),
)
def share_group_heartbeat(
    ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Deferred[ShareGroupHeartbeatResponse]:
    """Process a heartbeat. Respond once the changes that it makes are durable."""
    ctx.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if not is_member_id(request.member_id):
        return _response(HeartbeatResult(ErrorCode.INVALID_REQUEST))
    names = request.subscribed_topic_names
    if names and not all(ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return _response(HeartbeatResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    result = ctx.broker.share_groups.heartbeat(
        request.group_id,
        ShareHeartbeatRequest(
            member_id=request.member_id,
            epoch=request.member_epoch,
            rack_id=request.rack_id,
            topic_names=None if names is None else tuple(names),
            client_id=ctx.header.client_id or "",
            client_host=ctx.connection.peer_host,
            client_software=ctx.connection.client_software,
        ),
    )
    return result.map(_response) if isinstance(result, Deferred) else _response(result)


def _response(result: HeartbeatResult) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=None if result.message is None else result.message[:MESSAGE_CHARS],
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment_of(result.assigned),
    )


@handles(
    ShareGroupDescribeRequest,
    versions="1",
    on_error=OnError(elements("groups", "group_ids", {"group_id": ITSELF})),
)
def share_group_describe(
    ctx: RequestContext, request: ShareGroupDescribeRequest
) -> Steps[ShareGroupDescribeResponse]:
    response = ShareGroupDescribeResponse(throttle_time_ms=0, groups=[])
    return describe_each(ctx, request, _describe, response)


def _describe(ctx: RequestContext, group_id: str) -> Steps[DescribedGroup]:
    groups = ctx.broker.groups
    error = description_error(ctx, group_id)
    if error:
        return _error(group_id, error)
    membership = groups.host.membership(group_id, ShareMembership)
    if membership is None:
        message = not_found(group_id, groups.host.living_group(group_id))
        return _error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    described = yield from _with_members(membership)
    names = {
        partitions.topic_name
        for member in described.members
        for partitions in member.assignment.topic_partitions
    }
    if not all(ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return _error(
            group_id,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has described topic(s) that the client is not authorized to describe.",
        )
    return described


def _error(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=None if message is None else message[:MESSAGE_CHARS],
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _with_members(membership: ShareMembership) -> Steps[DescribedGroup]:
    data = membership.data
    state = data.state
    members: list[DescribedMember] = []
    for number, member in enumerate(list(state.members.values())):
        members.append((yield from _member(data, member)))
        if number % FEW == 0:
            yield
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=data.group_id,
        group_state=data.state_name,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=assignor.NAME,
        members=members,
    )


def _member(data: ShareData, member: ShareMember) -> Steps[DescribedMember]:
    assigned = yield from described_assignment(data.topics, member.assigned)
    return DescribedMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=assigned,
    )
