"""Lists and changes access rules (KIP-140, KIP-290) and limits on clients (KIP-546)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kohort.admin.cluster import Cluster, check
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
from kohort.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)

_WHAT: Final = "the access rules"


def list_rules(cluster: Cluster, wanted: RuleFilter) -> list[Rule]:
    request = DescribeAclsRequest(**_filter_of(wanted))
    answer: DescribeAclsResponse = cluster.ask(cluster.controller(), request)
    check(answer.error_code, _WHAT, answer.error_message)
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
    """Add rules; existing ones are left as they are."""
    creations = [
        AclCreation(
            resource_type=rule.resource_type,
            resource_name=rule.resource_name,
            resource_pattern_type=rule.pattern,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in rules
    ]
    request = CreateAclsRequest(creations=creations)
    answer: CreateAclsResponse = cluster.ask(cluster.controller(), request)
    for result in answer.results:
        check(result.error_code, _WHAT, result.error_message)


def remove_rules(cluster: Cluster, rules: Sequence[Rule]) -> None:
    """Remove exactly these rules in one request."""
    filters = [DeleteAclsFilter(**_filter_of(rule)) for rule in rules]
    request = DeleteAclsRequest(filters=filters)
    answer: DeleteAclsResponse = cluster.ask(cluster.controller(), request)
    for result in answer.filter_results:
        check(result.error_code, _WHAT, result.error_message)


def _filter_of(wanted: Rule | RuleFilter) -> dict[str, Any]:
    """The fields of a request that selects the rules matching a filter, or exactly one rule."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


Parts = tuple[tuple[str, str | None], ...]
"""Types and names of a quota entity; None as name means the default of the type."""


class Limits(NamedTuple):
    entity: Parts
    values: dict[str, float]


def list_limits(cluster: Cluster) -> list[Limits]:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    answer: DescribeClientQuotasResponse = cluster.ask(cluster.controller(), request)
    check(answer.error_code, "the limits cannot be listed")
    return [
        Limits(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def change_limits(
    cluster: Cluster, entity: Parts, values: Mapping[str, float], removed: Sequence[str] = ()
) -> None:
    ops = [OpData(key=key, value=value, remove=False) for key, value in values.items()]
    ops += [OpData(key=key, value=0.0, remove=True) for key in removed]
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    request = AlterClientQuotasRequest(
        entries=[EntryData(entity=parts, ops=ops)], validate_only=False
    )
    answer: AlterClientQuotasResponse = cluster.ask(cluster.controller(), request)
    for result in answer.entries:
        check(result.error_code, "the limits", result.error_message)
