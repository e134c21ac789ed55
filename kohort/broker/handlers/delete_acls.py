"""DeleteAcls (key 31): remove the access rules that match filters, all together.

v1-3 as in Kafka 4.4. A rule that matches several filters is listed for each.
"""

from __future__ import annotations

from kohort.broker.core.security.acls import Operation, Rule, RuleFilter, UnknownFilterError
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ErrorTemplate, OnError
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.access_rules import rules_in_force
from kohort.broker.runtime.slices import Slice
from kohort.broker.security.rules import TooManyRulesError
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


@handles(
    DeleteAclsRequest,
    versions="1-3",
    on_error=OnError(ErrorTemplate(response="filter_results", request="filters", copied={})),
)
async def delete_acls(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Remove rules; requires ALTER on the cluster. Answered when that is durable."""
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


def _filter(acl_filter: DeleteAclsFilter) -> RuleFilter:
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
