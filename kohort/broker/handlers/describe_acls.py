"""DescribeAcls (key 29): list the access rules that match a filter, by resource.

v1-3 as in Kafka 4.4. An unknown number in the filter matches nothing.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.core.security.acls import Operation, Rule, RuleFilter, UnknownFilterError
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.access_rules import rules_in_force
from kohort.broker.runtime.slices import Slice, run
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

NO_MESSAGE: Final = ""
"""Used by Kafka where the other APIs have null."""


@handles(DescribeAclsRequest, versions="1-3")
async def describe_acls(ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """List rules; requires DESCRIBE on the cluster."""
    text = "No Authorizer is configured on the broker"
    rules = rules_in_force(ctx, Operation.DESCRIBE, text=text)
    wanted = RuleFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    matching: list[Rule] = []
    try:
        wanted.check()
        matching = await rules.find(wanted)
    except UnknownFilterError:
        matching = []
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        error_message=NO_MESSAGE,
        resources=await run(_by_resource(matching), Slice(ctx.broker.clock)),
    )


def _by_resource(rules: list[Rule]) -> Steps[list[DescribeAclsResource]]:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for rule in rules:
        resource = rule.resource_type, rule.resource_name, rule.pattern
        if resource not in resources:
            resources[resource] = DescribeAclsResource(
                resource_type=rule.resource_type,
                resource_name=rule.resource_name,
                pattern_type=rule.pattern,
                acls=[],
            )
        resources[resource].acls.append(
            AclDescription(
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
        )
        yield
    return list(resources.values())
