"""ConsumerGroupHeartbeat (key 68): join, stay in or leave a consumer group (KIP-848).

v0-1. v1 regular expressions, and member ids that clients make. The rules are in
:mod:`kohort.groups.consumer.heartbeat`.
"""

import uuid
from typing import Final

from kohort.broker.coordinator.requests.consumer import short_id
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.consumer.member import by_topic
from kohort.groups.consumer.requests import HeartbeatRequest, HeartbeatResult
from kohort.groups.reasons import state_reason
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

CLIENT_MAKES_ID_SINCE: Final = 1
MESSAGE_CHARS: Final = 1_000
"""The most of an error message that is sent: it may repeat an id of 32 KiB."""


@handles(
    ConsumerGroupHeartbeatRequest,
    versions="0-1",
    on_error=OnError(member_epoch=0, heartbeat_interval_ms=0),
)
def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
    """Process a heartbeat: answered at once if it changes nothing, else when its changes are
    durable.
    """
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
        ),
        lambda name: ctx.sees(Operation.DESCRIBE, ResourceType.TOPIC, name),
    )
    return result.map(response_for) if isinstance(result, Deferred) else response_for(result)


def core_request(
    request: ConsumerGroupHeartbeatRequest, member_id: str, *, client_id: str, client_host: str
) -> HeartbeatRequest:
    """Convert the request; `member_id` is the client's, or was created for it."""
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
    )


def response_for(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assigned is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                for topic_id, numbers in by_topic(result.assigned).items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=None if result.message is None else result.message[:MESSAGE_CHARS],
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
