"""CreateAcls (key 30): there is no authorizer that a rule could be given to.

v1-3 as in Kafka 4.4 without an authorizer.
"""

from __future__ import annotations

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import Mirror, OnError
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


@handles(
    CreateAclsRequest,
    versions="1-3",
    on_error=OnError(Mirror(response="results", request="creations", copied={})),
)
def create_acls(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Say so of each rule."""
    del ctx
    return CreateAclsResponse(
        results=[
            AclCreationResult(
                error_code=ErrorCode.SECURITY_DISABLED,
                error_message="No Authorizer is configured.",
            )
            for _ in request.creations
        ]
    )
