"""DescribeDelegationToken (key 41): not supported.

v1-3, refused as by a Kafka broker without delegation tokens.
"""

from __future__ import annotations

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.no_tokens import refusal
from kohort.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


@handles(DescribeDelegationTokenRequest, versions="1-3")
def describe_delegation_token(
    ctx: RequestContext, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Refuse the request."""
    return DescribeDelegationTokenResponse(error_code=refusal(ctx), tokens=[])
