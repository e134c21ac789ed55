"""RenewDelegationToken (key 39): not supported.

v1-2, refused as by a Kafka broker without delegation tokens.
"""

from __future__ import annotations

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.no_tokens import expiry_ms, refusal
from kohort.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(RenewDelegationTokenRequest, versions="1-2")
def renew_delegation_token(
    ctx: RequestContext, _request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Refuse the request."""
    code = refusal(ctx)
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms(code))
