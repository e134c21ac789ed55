"""ConsumerGroupHeartbeat (key 68): join, stay in or leave a consumer group (KIP-848).
ConsumerGroupDescribe (key 69): state and members of consumer groups.

The rules of the heartbeat are in :mod:`kohort.groups.consumer.heartbeat`.
"""

import uuid
from typing import Final

from kohort.broker.coordinator.requests.consumer import short_id
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.described_groups import (
    MESSAGE_CHARS,
    assignment_of,
    describe_each,
    described_assignment,
    description_error,
)
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.member import Member
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.member_sessions import HeartbeatResult
from kohort.groups.reasons import state_reason
from kohort.groups.requests import Connection
from kohort.groups.steps import FEW, Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from kohort.protocol.messages.consumer_group_describe import Member as DescribedMember
from kohort.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CLIENT_MAKES_ID_SINCE: Final = 1


@handles(
    ConsumerGroupHeartbeatRequest,
    versions="0-1",
    on_error=OnError(member_epoch=0, heartbeat_interval_ms=0),
)
def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
    """Process a heartbeat. Respond once the changes that it makes are durable."""
    if not ctx.broker.consumer_groups.is_enabled:
        return response_for(HeartbeatResult(ErrorCode.UNSUPPORTED_VERSION))
    ctx.require(Operation.READ, ResourceType.GROUP, request.group_id)
    names = request.subscribed_topic_names
    if names is not None and not all(
        ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names
    ):
        return response_for(HeartbeatResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    member_id = request.member_id
    if not member_id and not request.member_epoch and ctx.api_version < CLIENT_MAKES_ID_SINCE:
        member_id = short_id(uuid.uuid4().bytes)
    result = ctx.broker.consumer_groups.heartbeat(
        request.group_id,
        core_request(
            request,
            member_id,
            client_id=ctx.header.client_id or "",
            client_host=ctx.connection.peer_host,
            client_software=ctx.connection.client_software,
            connection=ctx.connection,
        ),
        lambda name: ctx.sees(Operation.DESCRIBE, ResourceType.TOPIC, name),
    )
    return result.map(response_for) if isinstance(result, Deferred) else response_for(result)


def core_request(
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    *,
    client_id: str,
    client_host: str,
    client_software: str,
    connection: Connection | None = None,
) -> HeartbeatRequest:
    """Convert the request; `member_id` was sent by the client, or created for it."""
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return HeartbeatRequest(
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset(
            (listed.topic_id, partition) for listed in owned for partition in listed.partitions
        ),
        client_id=client_id,
        client_host=client_host,
        reason=state_reason(request.join_reason, request.reason),
        client_software=client_software,
        connection=connection,
    )


def response_for(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=None if result.message is None else result.message[:MESSAGE_CHARS],
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment_of(result.assigned),
    )


_CLASSIC: Final = 0
_CONSUMER: Final = 1


@handles(
    ConsumerGroupDescribeRequest,
    versions="0-1",
    on_error=OnError(elements("groups", "group_ids", {"group_id": ITSELF})),
)
def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    response = ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[])
    return describe_each(ctx, request, _describe, response)


def _describe(ctx: RequestContext, group_id: str) -> Steps[DescribedGroup]:
    if not ctx.broker.consumer_groups.is_enabled:
        return _error(group_id, ErrorCode.UNSUPPORTED_VERSION)
    groups = ctx.broker.groups
    error = description_error(ctx, group_id)
    if error:
        return _error(group_id, error)
    membership = groups.host.membership(group_id, ConsumerMembership)
    if membership is None:
        is_absent = groups.host.living_group(group_id) is None
        problem = "not found" if is_absent else "is not a consumer group"
        return _error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")
    if not all(
        ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        for name in membership.subscribed_topics()
    ):
        return _error(
            group_id,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The described group uses topics that the client is not authorized to describe.",
        )
    return (yield from _with_members(membership))


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


def _with_members(membership: ConsumerMembership) -> Steps[DescribedGroup]:
    description = membership.describe()
    data = membership.data
    members: list[DescribedMember] = []
    for number, member in enumerate(list(data.members.values())):
        members.append((yield from _member(data, member)))
        if number % FEW == 0:
            yield
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=description.group_id,
        group_state=description.state,
        group_epoch=data.epoch,
        assignment_epoch=data.target_epoch,
        assignor_name=description.assignor or "",
        members=members,
    )


def _member(data: ConsumerData, member: Member) -> Steps[DescribedMember]:
    held = (*member.assigned, *member.pending)
    assigned = yield from described_assignment(data.topics, held)
    target = yield from described_assignment(data.topics, data.target(member.member_id))
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=assigned,
        target_assignment=target,
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )
