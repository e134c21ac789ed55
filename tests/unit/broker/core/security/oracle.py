"""The authorizer's decisions from the list of rules alone, as the contract says them."""

from collections.abc import Sequence

from kohort.broker.core.security.acls import Operation, PatternType, Permission, ResourceType, Rule

IMPLIED = {
    Operation.DESCRIBE: ("READ", "WRITE", "DELETE", "ALTER"),
    Operation.DESCRIBE_CONFIGS: ("ALTER_CONFIGS",),
}


def matches(rule: Rule, kind: ResourceType, name: str) -> bool:
    if rule.resource_type is not kind:
        return False
    if rule.pattern is PatternType.PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in {name, "*"}


def decides(rule: Rule, who: str, host: str, operation: Operation) -> bool:
    names = {operation.name, "ALL"}
    if rule.permission is Permission.ALLOW:
        names.update(IMPLIED.get(operation, ()))
    return (
        rule.principal in {who, "User:*"} and rule.host in {host, "*"}
    ) and rule.operation.name in names


def allows(
    rules: Sequence[Rule],
    who: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    otherwise: bool = False,
) -> bool:
    matching = [rule for rule in rules if matches(rule, kind, name)]
    applying = {rule.permission for rule in matching if decides(rule, who, host, operation)}
    if Permission.DENY in applying:
        return False
    return Permission.ALLOW in applying or (otherwise and not matching)


def allows_some(
    rules: Sequence[Rule], who: str, host: str, operation: Operation, kind: ResourceType
) -> bool:
    """Without implied operations: to be allowed a read says nothing about describing any."""
    mine = [
        rule
        for rule in rules
        if rule.resource_type is kind
        and rule.operation in {operation, Operation.ALL}
        and decides(rule, who, host, operation)
    ]
    denials = [rule for rule in mine if rule.permission is Permission.DENY]

    def is_covered(rule: Rule) -> bool:
        if rule.pattern is PatternType.LITERAL:
            wide = rule.resource_name == "*"
            return any(
                denial.resource_name == "*" and denial.pattern is PatternType.LITERAL
                if wide
                else matches(denial, kind, rule.resource_name)
                for denial in denials
            )
        return any(
            (denial.resource_name == "*" and denial.pattern is PatternType.LITERAL)
            or (
                denial.pattern is PatternType.PREFIXED
                and rule.resource_name.startswith(denial.resource_name)
            )
            for denial in denials
        )

    return any(rule.permission is Permission.ALLOW and not is_covered(rule) for rule in mine)
