"""SaslHandshake (key 17): choose an authentication mechanism.
SaslAuthenticate (key 36): one step of the exchange that it starts.

SaslHandshake v0 is followed by bare tokens, v1 by SaslAuthenticate requests (KIP-152), of which v1
returns the session lifetime (KIP-368) and v2 is flexible. The rules of the mechanisms are in
`kohort.broker.core.security`; `kohort.broker.security.authenticator` enforces the order of
requests.
"""

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.network.service import TokenAnswer
from kohort.broker.runtime.deferred import Deferred
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

NOT_NOW = TokenAnswer(
    ErrorCode.ILLEGAL_SASL_STATE,
    "SaslAuthenticate request received after successful authentication",
)


@handles(SaslAuthenticateRequest, versions="0-2")
def sasl_authenticate(
    ctx: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Deferred[SaslAuthenticateResponse]:
    """Process a token; waits while a password is checked, and before a failure is reported."""
    authentication = ctx.connection.authentication
    if authentication is None:
        return _response(NOT_NOW)
    answer = authentication.authenticate(bytes(request.auth_bytes))
    if isinstance(answer, Deferred):
        return answer.map(_response)
    return _response(answer)


def _response(answer: TokenAnswer) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=answer.error,
        error_message=answer.message,
        auth_bytes=answer.token,
        session_lifetime_ms=answer.lifetime_ms,
    )


@handles(SaslHandshakeRequest, versions="0-1")
def sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Choose a mechanism; ILLEGAL_SASL_STATE if authentication is complete or not required."""
    authentication = ctx.connection.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    error = authentication.handshake(request.mechanism, tokens_are_bare=ctx.api_version == 0)
    mechanisms = [] if error is ErrorCode.ILLEGAL_SASL_STATE else list(authentication.mechanisms)
    return SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
