"""DescribeGroups (key 15): state and members of classic groups, for operators; any other group is
reported as unknown.
ListGroups (key 16): the groups that this broker coordinates. Filters ignore case; an unknown value
matches nothing, and an empty filter matches everything.
DeleteGroups (key 42): delete groups without members, and their offsets. An id that is named twice
is answered once.
"""

from collections.abc import Sequence
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import check_repeats
from kohort.groups.group import Group
from kohort.groups.kinds import DEAD, GroupKind
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def _drop_repeats(_ctx: RequestContext, request: DeleteGroupsRequest) -> None:
    request.groups_names = list(dict.fromkeys(request.groups_names))


@handles(
    DeleteGroupsRequest,
    versions="0-3",
    on_error=OnError(elements("results", "groups_names", {"group_id": ITSELF})),
    parts=(lists("groups_names", "results"),),
    prepare=_drop_repeats,
    part_max=20,
)
async def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
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


@handles(ListGroupsRequest, versions="0-5")
def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    """List groups, in arbitrary order."""
    sees_all = ctx.sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    # Converted once, not for each group: a filter may have thousands of values.
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
    """Return the values of a filter in lower case; an empty filter accepts everything."""
    return frozenset([value.lower() for value in values])


NOT_FOUND_SINCE: Final = 6


def _check(_ctx: RequestContext, request: DescribeGroupsRequest) -> None:
    check_repeats(request.groups)


@handles(
    DescribeGroupsRequest,
    versions="0-6",
    on_error=OnError(elements("groups", "groups", {"group_id": ITSELF})),
    parts=(lists("groups"),),
    prepare=_check,
)
def describe_groups(
    ctx: RequestContext, request: DescribeGroupsRequest
) -> Steps[DescribeGroupsResponse]:
    _check(ctx, request)
    response = DescribeGroupsResponse(groups=[])
    for group_id in request.groups:
        group = _describe(ctx, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = ctx.operations(ResourceType.GROUP, group_id)
        response.groups.append(group)
        yield
    return response


def _describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    if not ctx.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _without_group(group_id, "", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    groups = ctx.broker.groups
    error = groups.read_error(group_id)
    if error:
        return _without_group(group_id, "", error)
    group = groups.host.living_group(group_id)
    is_classic = group is None or group.kind is GroupKind.CLASSIC
    if group is not None and is_classic:
        return _with_group(group)
    if ctx.api_version < NOT_FOUND_SINCE:
        return _without_group(group_id, DEAD, ErrorCode.NONE)
    absent = _without_group(group_id, DEAD, ErrorCode.GROUP_ID_NOT_FOUND)
    problem = "not found" if is_classic else "is not a classic group"
    absent.error_message = f"Group {group_id} {problem}."
    return absent


def _without_group(group_id: str, state: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _with_group(group: Group) -> DescribedGroup:
    described = group.describe()
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=described.group_id,
        group_state=described.state,
        protocol_type=described.protocol_type or "",
        protocol_data=(described.assignor or "") if described.is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.describe_members()
        ],
    )
