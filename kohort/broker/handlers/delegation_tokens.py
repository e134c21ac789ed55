"""CreateDelegationToken (key 38), RenewDelegationToken (39), ExpireDelegationToken (40) and
DescribeDelegationToken (41): not supported.

Delegation tokens (KIP-48) replace Kerberos logins to the brokers of a cluster; this broker has
neither Kerberos nor a cluster. Requests are rejected as by a Kafka broker without
`delegation.token.secret.key`.
"""

from collections.abc import Callable

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import ANONYMOUS, USER, Principal
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import Message
from kohort.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def _error(ctx: RequestContext) -> ErrorCode:
    """Return the error: the client is not authenticated, or else delegation tokens are disabled."""
    if ctx.session.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return _DISABLED


def _timestamp_ms(code: ErrorCode) -> int:
    """Return the timestamp in an error response. As in Kafka, it is 0 if the controller reports the
    error (tokens are disabled), otherwise -1.
    """
    return 0 if code is _DISABLED else -1


@handles(CreateDelegationTokenRequest, versions="1-3")
def create_delegation_token(
    ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Reject the request, with the error of the first of Kafka's checks that fails."""
    requester = ctx.session.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    code = _error(ctx)
    if code is _DISABLED:
        if owner != requester and not ctx.may(
            Operation.CREATE_TOKENS, ResourceType.USER, str(owner)
        ):
            code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        elif any(renewer.principal_type != USER for renewer in request.renewers):
            code = ErrorCode.INVALID_PRINCIPAL_TYPE
    response = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=_timestamp_ms(code),
        expiry_timestamp_ms=_timestamp_ms(code),
        max_timestamp_ms=_timestamp_ms(code),
        token_id="",
        hmac=b"",
    )
    if ctx.api_version >= 3:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    return response


def _rejects(request: type, versions: str, respond: Callable[[ErrorCode], Message]) -> None:
    @handles(request, versions=versions)
    def reject(ctx: RequestContext, _request: object) -> Message:
        return respond(_error(ctx))


_rejects(
    RenewDelegationTokenRequest,
    "1-2",
    lambda code: RenewDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=_timestamp_ms(code)
    ),
)
_rejects(
    ExpireDelegationTokenRequest,
    "1-2",
    lambda code: ExpireDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=_timestamp_ms(code)
    ),
)
_rejects(
    DescribeDelegationTokenRequest,
    "1-3",
    lambda code: DescribeDelegationTokenResponse(error_code=code, tokens=[]),
)
