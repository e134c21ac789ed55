"""ListGroups (key 16): the groups that this broker coordinates.

v0-5. v3 flexible, v4 state and a filter by state, v5 type and a filter by type. Filters ignore
case; an unknown value matches nothing, and an empty filter matches everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@handles(ListGroupsRequest, versions="0-5")
def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    """List groups, in arbitrary order."""
    sees_all = ctx.sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    # Once for all groups: the filter of any client may have thousands of values.
    types, states = _accepted(request.types_filter), _accepted(request.states_filter)
    response = ListGroupsResponse(error_code=ErrorCode.NONE, groups=[])
    for group in list(ctx.broker.groups.host.groups()):
        described = group.describe()
        if (
            (not types or described.kind.value.lower() in types)
            and (not states or described.state.lower() in states)
            and (sees_all or ctx.sees(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ):
            response.groups.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=described.protocol_type or "",
                    group_state=described.state,
                    group_type=described.kind.value,
                )
            )
        yield
    return response


def _accepted(values: Sequence[str]) -> frozenset[str]:
    """The values of a filter in lower case; empty if it accepts everything."""
    return frozenset([value.lower() for value in values])
