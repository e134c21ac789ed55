"""CreateAcls, DeleteAcls and DescribeAcls (keys 30, 31, 29): access rules.

All v1-3 as in Kafka 4.4; v1 added the pattern type (KIP-290). Creations succeed or fail
individually; creating an existing rule succeeds. Invalid creations for which Kafka returns
UNKNOWN_SERVER_ERROR, or closes the connection, return INVALID_REQUEST here. DeleteAcls deletes all
matching rules or none; a rule that matches several filters is listed for each. A DescribeAcls
filter with an unknown resource type, operation or other code matches nothing.
"""

from typing import Final

from kohort.broker.core.security.acls import (
    InvalidRuleError,
    Operation,
    ResourceType,
    Rule,
    RuleFilter,
    UnknownFilterError,
    rule_of,
)
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, elements
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.security.rules import AccessRules, TooManyRulesError
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

NO_MESSAGE: Final = ""
"""The `error_message` if there is no error: empty, as in Kafka, whose other APIs return null."""


@handles(DescribeAclsRequest, versions="1-3")
async def describe_acls(ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """List rules; requires DESCRIBE on the cluster."""
    text = "No Authorizer is configured on the broker"
    rules = rules_in_force(ctx, Operation.DESCRIBE, text=text)
    try:
        matching = await rules.find(_filter(request))
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


@handles(
    DeleteAclsRequest,
    versions="1-3",
    on_error=OnError(elements("filter_results", "filters", {})),
)
async def delete_acls(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Remove rules; requires ALTER on the cluster. Answered when the removal is durable."""
    rules = rules_in_force(ctx, Operation.ALTER, text="No Authorizer is configured.")
    results = []
    time_slice = Slice(ctx.broker.clock)
    sound: list[tuple[RuleFilter, DeleteAclsFilterResult]] = []
    for acl_filter in request.filters:
        result = DeleteAclsFilterResult(
            error_code=ErrorCode.NONE, error_message=None, matching_acls=[]
        )
        results.append(result)
        try:
            sound.append((_filter(acl_filter), result))
        except UnknownFilterError as error:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
        await time_slice.pause()
    try:
        deleted = await rules.delete([wanted for wanted, _ in sound])
    except TooManyRulesError as error:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, str(error)) from None
    for (_, result), of_filter in zip(sound, deleted, strict=True):
        result.matching_acls = [_removed(rule) for rule in of_filter]
        await time_slice.pause()
    return DeleteAclsResponse(filter_results=results)


def _filter(acl_filter: DeleteAclsFilter | DescribeAclsRequest) -> RuleFilter:
    """Convert the filter of a request. Raises UnknownFilterError."""
    wanted = RuleFilter(
        acl_filter.resource_type_filter,
        acl_filter.resource_name_filter,
        acl_filter.pattern_type_filter,
        acl_filter.principal_filter,
        acl_filter.host_filter,
        acl_filter.operation,
        acl_filter.permission_type,
    )
    wanted.check()
    return wanted


def _removed(rule: Rule) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


PART_MAX: Final = 2_000
"""Maximum rules created in one step; a long request is split into parts of this size."""


@handles(
    CreateAclsRequest,
    versions="1-3",
    on_error=OnError(elements("results", "creations", {})),
    parts=(lists("creations", "results"),),
    part_max=PART_MAX,
)
async def create_acls(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add rules; requires ALTER on the cluster. Answered when they are durable and in effect."""
    rules = rules_in_force(ctx, Operation.ALTER, text="No Authorizer is configured.")
    results = []
    new: list[Rule] = []
    time_slice = Slice(ctx.broker.clock)
    for creation in request.creations:
        result = AclCreationResult(error_code=ErrorCode.NONE, error_message="")
        results.append(result)
        try:
            new.append(_rule(creation))
        except InvalidRuleError as error:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
        await time_slice.pause()
    try:
        await rules.create(new)
    except TooManyRulesError as error:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, str(error)) from None
    return CreateAclsResponse(results=results)


def _rule(creation: AclCreation) -> Rule:
    return rule_of(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def rules_in_force(ctx: RequestContext, operation: Operation, *, text: str) -> AccessRules:
    """Return the access rules if the principal may perform `operation` on the cluster.

    Raises:
        KafkaError: SECURITY_DISABLED with `text` if there is no authorizer, or
            CLUSTER_AUTHORIZATION_FAILED.
    """
    access = ctx.broker.access
    if access is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, text)
    ctx.require(operation, ResourceType.CLUSTER)
    return access.rules
