"""CreateDelegationToken (key 38): not supported.

v1-3, refused as by a Kafka broker without delegation tokens.
"""

from __future__ import annotations

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import USER, Principal
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.no_tokens import refusal
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


@handles(CreateDelegationTokenRequest, versions="1-3")
def create_delegation_token(
    ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Refuse the request, for the first reason that Kafka would find."""
    requester = ctx.session.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    code = refusal(ctx)
    if code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
        if owner != requester and not ctx.may(
            Operation.CREATE_TOKENS, ResourceType.USER, str(owner)
        ):
            code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        elif any(renewer.principal_type != USER for renewer in request.renewers):
            code = ErrorCode.INVALID_PRINCIPAL_TYPE
    # If Kafka's broker refuses by itself the value is -1, if its controller does it is 0.
    never_ms = 0 if code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else -1
    answer = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=never_ms,
        expiry_timestamp_ms=never_ms,
        max_timestamp_ms=never_ms,
        token_id="",
        hmac=b"",
    )
    if ctx.api_version >= 3:
        answer.token_requester_principal_type = requester.type
        answer.token_requester_principal_name = requester.name
    return answer
