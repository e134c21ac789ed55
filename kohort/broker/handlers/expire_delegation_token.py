"""ExpireDelegationToken (key 40): not supported.

v1-2, refused as by a Kafka broker without delegation tokens.
"""

from __future__ import annotations

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.no_tokens import refusal
from kohort.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(ExpireDelegationTokenRequest, versions="1-2")
def expire_delegation_token(
    ctx: RequestContext, _request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Refuse the request."""
    return ExpireDelegationTokenResponse(error_code=refusal(ctx), expiry_timestamp_ms=-1)
