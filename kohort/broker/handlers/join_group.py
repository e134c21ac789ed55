"""JoinGroup (key 11): join, or rejoin, a group's next generation.

v0-9. v1 rebalance timeout, v4 member id required, v5 instance id, v6 flexible, and with it Kohort's
tag that states a reason as a number, v7 protocol type in the response, v8 a reason as text, v9 skip
assignment. The rules are in :mod:`kohort.groups.classic.join`.
"""

from functools import partial
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.reasons import state_reason
from kohort.groups.requests import JoinRequest, JoinResult
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

REBALANCE_TIMEOUT_SINCE: Final = 1
MEMBER_ID_REQUIRED_SINCE: Final = 4
NULL_PROTOCOL_NAME_SINCE: Final = 7
SKIP_ASSIGNMENT_SINCE: Final = 9


@handles(JoinGroupRequest, versions="0-9", on_error=OnError(generation_id=-1))
def join_group(
    ctx: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
    """Join; usually answered at the end of the rebalance's join phase."""
    version = ctx.api_version
    if not ctx.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return RESPONDERS[version](JoinResult(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    ticket = ctx.broker.classic_groups.join(
        request.group_id,
        JoinRequest(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=ctx.header.client_id or "",
            client_host=ctx.connection.peer_host,
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
"""Functions by version. Created once, because thousands of members wait for their responses
together."""
