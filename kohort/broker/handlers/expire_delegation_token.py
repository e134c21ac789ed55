"""ExpireDelegationToken (key 40): not supported.

v1-2, refused as by a Kafka broker without delegation tokens.
"""

from __future__ import annotations

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.no_tokens import expiry_ms, refusal
from kohort.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(ExpireDelegationTokenRequest, versions="1-2")
def expire_delegation_token(
    ctx: RequestContext, _request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Refuse the request."""
    code = refusal(ctx)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms(code))
