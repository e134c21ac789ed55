"""Lists, adds and removes access rules (ACLs) of a cluster (KIP-140, KIP-290)."""

from collections.abc import Sequence
from typing import Final

from kohort.admin.cluster import Cluster, RefusedError
from kohort.broker.core.security.acls import Rule, RuleFilter, rule_of
from kohort.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

_WHAT: Final = "the access rules"


def list_rules(cluster: Cluster, wanted: RuleFilter) -> list[Rule]:
    """The rules that match a filter. Raises RefusedError, DisconnectedError."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    answer: DescribeAclsResponse = cluster.ask(cluster.controller(), request)
    if answer.error_code:
        raise RefusedError(answer.error_code, _WHAT, answer.error_message)
    return [
        rule_of(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            rule.principal,
            rule.host,
            rule.operation,
            rule.permission_type,
        )
        for resource in answer.resources
        for rule in resource.acls
    ]


def add_rules(cluster: Cluster, rules: Sequence[Rule]) -> None:
    """Add rules; existing ones are left as they are. Raises as `list_rules`."""
    request = CreateAclsRequest(creations=list(map(creation_of, rules)))
    answer: CreateAclsResponse = cluster.ask(cluster.controller(), request)
    for result in answer.results:
        if result.error_code:
            raise RefusedError(result.error_code, _WHAT, result.error_message)


def remove_rules(cluster: Cluster, rules: Sequence[Rule]) -> None:
    """Remove exactly these rules in one request. Raises as `list_rules`."""
    request = DeleteAclsRequest(filters=list(map(filter_of, rules)))
    answer: DeleteAclsResponse = cluster.ask(cluster.controller(), request)
    for result in answer.filter_results:
        if result.error_code:
            raise RefusedError(result.error_code, _WHAT, result.error_message)


def creation_of(rule: Rule) -> AclCreation:
    """The part of a CreateAcls request that adds a rule."""
    return AclCreation(
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        resource_pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def filter_of(rule: Rule) -> DeleteAclsFilter:
    """The part of a DeleteAcls request that matches exactly this rule."""
    return DeleteAclsFilter(
        resource_type_filter=rule.resource_type,
        resource_name_filter=rule.resource_name,
        pattern_type_filter=rule.pattern,
        principal_filter=rule.principal,
        host_filter=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
