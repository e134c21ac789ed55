"""SaslHandshake (key 17): choose an authentication mechanism.

v0 is followed by bare tokens, v1 by SaslAuthenticate requests (KIP-152).
`kohort.broker.security.authenticator` enforces the order of requests.
"""

from __future__ import annotations

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, versions="0-1")
def sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Choose a mechanism; ILLEGAL_SASL_STATE if authentication is complete or not required."""
    authentication = ctx.connection.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    error = authentication.handshake(request.mechanism, tokens_are_bare=ctx.api_version == 0)
    mechanisms = [] if error is ErrorCode.ILLEGAL_SASL_STATE else list(authentication.mechanisms)
    return SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
