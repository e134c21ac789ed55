"""DeleteAcls (key 31): there is no authorizer, hence no rules.

v1-3 as in Kafka 4.4 without an authorizer.
"""

from __future__ import annotations

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import Mirror, OnError
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


@handles(
    DeleteAclsRequest,
    versions="1-3",
    on_error=OnError(Mirror(response="filter_results", request="filters", copied={})),
)
def delete_acls(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Say so of each filter."""
    del ctx
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED,
                error_message="No Authorizer is configured.",
                matching_acls=[],
            )
            for _ in request.filters
        ]
    )
