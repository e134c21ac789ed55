"""DeleteGroups (key 42): delete groups without members, and their offsets.

v0-3. v2 flexible, v3 a message per group. An id that is named twice is answered once.
"""

from __future__ import annotations

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, ErrorTemplate, OnError
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def _drop_repeats(ctx: RequestContext, request: DeleteGroupsRequest) -> None:
    del ctx
    request.groups_names = list(dict.fromkeys(request.groups_names))


@handles(
    DeleteGroupsRequest,
    versions="0-3",
    on_error=OnError(
        ErrorTemplate(response="results", request="groups_names", copied={"group_id": ITSELF})
    ),
    parts=(lists("groups_names", "results"),),
    prepare=_drop_repeats,
    part_max=20,
)
async def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete the groups; answered when that is durable."""
    group_ids = list(dict.fromkeys(request.groups_names))
    tickets = [
        ctx.broker.groups.delete_group(group_id)
        if ctx.may(Operation.DELETE, ResourceType.GROUP, group_id)
        else None
        for group_id in group_ids
    ]
    results: list[DeletableGroupResult] = []
    for group_id, ticket in zip(group_ids, tickets, strict=True):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        try:
            if ticket is not None:
                error = await ticket
        except KafkaError as failure:
            error = failure.code
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    return DeleteGroupsResponse(results=results)
