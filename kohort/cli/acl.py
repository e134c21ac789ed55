"""``kohort acl``: access rules (ACLs) of a Kohort or Kafka cluster that has an authorizer.

`check` fetches the rules from the broker and evaluates them here, with the broker's code. The
broker's settings are not visible to clients, so super users have to be given with `--super-users`.
"""

import argparse
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from kohort.admin.access import add_rules, list_rules, remove_rules
from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.users import list_users
from kohort.broker.core.security.acls import (
    ANY,
    MATCH,
    OPERATIONS,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    RuleFilter,
)
from kohort.broker.core.security.addresses import host_text
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.core.security.session import ANONYMOUS, CLUSTER_NAME, USER, Principal
from kohort.cli.commands import Commands
from kohort.cli.errors import NotFoundError, UsageError
from kohort.cli.options import add_kafka, cluster_of, print_result, print_rows
from kohort.client.net.versions import UnsupportedVersionError
from kohort.formats.text import shown

_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "user": ResourceType.USER,
}
_RESOURCES: Final = f"{', '.join(f'{kind}:NAME' for kind in _TYPES)} or cluster"
_OPERATIONS: Final = {member.name.lower().replace("_", "-"): member for member in Operation}
_INTERNAL_TOPICS: Final = ("__consumer_offsets", "__rebalance_history", "__transaction_state")

_TITLES: Final = {
    "resource_type": "RESOURCE",
    "resource_name": "NAME",
    "pattern": "PATTERN",
    "permission": "PERMISSION",
    "principal": "PRINCIPAL",
    "host": "HOST",
    "operation": "OPERATION",
}


class Resource(NamedTuple):
    """A resource, or the common prefix of several resources' names."""

    type: ResourceType
    name: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = Commands(parser, failure="no such rule, or an operation is not allowed")

    command = commands.add("list", "access rules, all or some", _list)
    _add_filter(command)
    add_kafka(command)

    command = commands.add("add", "allow or deny operations on a resource", _add)
    _add_rule(command)
    command.add_argument(
        "--prefixed", action="store_true", help="all resources whose names have this prefix"
    )
    command.add_argument(
        "--deny", action="store_true", help="deny instead of allow; deny rules take precedence"
    )
    command.add_argument("--host", type=_host, default="*", help="only from this numeric address")
    add_kafka(command)

    command = commands.add(
        "remove", "remove the rules that `list` shows for these options", _remove
    )
    _add_filter(command)
    command.add_argument("--all", action="store_true", help="remove all rules")
    add_kafka(command)

    command = commands.add("check", "whether a principal is allowed, and by which rule", _check)
    _add_rule(command)
    command.add_argument(
        "--host", type=_host, default="127.0.0.1", help="address of the client (%(default)s)"
    )
    command.add_argument(
        "--super-users", default="", help="super.users of the broker, as in User:a;User:b"
    )
    command.add_argument(
        "--open", action="store_true", help="the broker has allow.everyone.if.no.acl.found=true"
    )
    add_kafka(command)


def _add_rule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "principal",
        type=_principal,
        metavar="PRINCIPAL",
        help="a user, as alice or User:alice; '*' is everybody",
    )
    parser.add_argument(
        "operations",
        type=_operation,
        metavar="OPERATION",
        nargs="+",
        help=f"{', '.join(_OPERATIONS)}",
    )
    parser.add_argument(
        "resource",
        type=_resource,
        metavar="RESOURCE",
        help=f"{_RESOURCES}; 'topic:*' is every topic",
    )


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--principal", type=_principal)
    parser.add_argument("--operation", type=_operation)
    parser.add_argument("--resource", type=_resource, help="rules for exactly this name")
    parser.add_argument(
        "--matching",
        action="store_true",
        help="with --resource: all rules that apply to the resource",
    )


def _resource(text: str) -> Resource:
    """Parse ``topic:orders``, ``group:billing``, ``cluster``."""
    if text == "cluster":
        return Resource(ResourceType.CLUSTER, CLUSTER_NAME)
    kind, _, name = text.partition(":")
    if kind not in _TYPES or not name:
        raise argparse.ArgumentTypeError(f"invalid resource {text!r}: expected {_RESOURCES}")
    return Resource(_TYPES[kind], name)


def _principal(text: str) -> str:
    """Parse ``alice`` as ``User:alice``, and ``*`` as all users."""
    kind, colon, _ = text.partition(":")
    if not colon:
        return f"{USER}:{text}"
    if kind != USER and kind.lower() == USER.lower():
        # No principal would ever match such a rule.
        raise argparse.ArgumentTypeError(f"{text!r} must begin with {USER}: (case-sensitive)")
    return text


def _host(text: str) -> str:
    """Parse a numeric address into the text that brokers compare, or ``*`` for all addresses."""
    if text == WILDCARD:
        return text
    try:
        ip_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a numeric address: brokers compare the text of addresses, so host"
            " names and networks never match"
        ) from None
    return host_text(text)


def _operation(text: str) -> Operation:
    """Parse one of Kafka's operations in lower case, such as ``describe-configs``."""
    operation = _OPERATIONS.get(text.lower().replace("_", "-"))
    if operation is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_OPERATIONS)}")
    return operation


def _filter_of(options: argparse.Namespace) -> RuleFilter:
    resource = options.resource
    return RuleFilter(
        resource_type=ANY if resource is None else resource.type,
        resource_name=None if resource is None else resource.name,
        pattern=MATCH if options.matching else ANY,
        principal=options.principal,
        operation=options.operation or ANY,
    )


def _list(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        rules = sorted(list_rules(cluster, _filter_of(options)))
    print_rows(options, "rules", _TITLES, list(map(_rule_json, rules)))


def _rule_json(rule: Rule) -> dict[str, str]:
    return {
        "resource_type": rule.resource_type.name,
        "resource_name": rule.resource_name,
        "pattern": rule.pattern.name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name,
        "permission": rule.permission.name,
    }


def _add(options: argparse.Namespace) -> None:
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    permission = Permission.DENY if options.deny else Permission.ALLOW
    kind, name = options.resource
    rules = [
        Rule(kind, name, pattern, options.principal, options.host, operation, permission)
        for operation in options.operations
    ]
    with cluster_of(options) as cluster:
        add_rules(cluster, rules)
        is_unknown = _is_unknown(cluster, options.principal)
    for rule in rules:
        print(f"added: {rule}")
    for warning in _useless_operations(options):
        print(warning)
    if is_unknown:
        user = shown(options.principal.partition(":")[2])
        print(
            f"Warning: no user is called {user}; the rule applies to clients with certificates or"
            " tokens, and to a user added later"
        )


def _is_unknown(cluster: Cluster, principal: str) -> bool:
    """Whether the cluster has users with passwords, but not `principal`."""
    kind, _, name = principal.partition(":")
    if kind != USER or name in {WILDCARD, ANONYMOUS.name} or "=" in name:
        # Not users with passwords: other principal types, everybody, anonymous, certificates.
        return False
    try:
        return not list_users(cluster, [name]) and bool(list_users(cluster))
    except (RefusedError, UnsupportedVersionError):
        # Not authorized to list users, or the broker has no such API.
        return False


def _remove(options: argparse.Namespace) -> None:
    rule_filter = _filter_of(options)
    if (rule_filter == RuleFilter()) is not options.all:
        raise UsageError("give --principal, --operation or --resource, or else --all")
    with cluster_of(options) as cluster:
        rules = list_rules(cluster, rule_filter)
        if not rules:
            raise NotFoundError("no such rule")
        remove_rules(cluster, rules)
    for rule in rules:
        print(f"removed: {rule}")


def _check(options: argparse.Namespace) -> None:
    """Print whether each operation is allowed, and why. Raises NotFoundError if any is denied."""
    with cluster_of(options) as cluster:
        rules = list_rules(cluster, RuleFilter())
    authorizer = Authorizer(
        super_users=[name.strip() for name in options.super_users.split(";") if name.strip()],
        allow_everyone_if_no_acl_found=options.open,
        rules=rules,
    )
    kind, _, name = options.principal.partition(":")
    principal, resource = Principal(kind, name), options.resource
    answers = [
        (operation.name, explanation.allowed, explanation.reason)
        for operation in options.operations
        for explanation in [
            authorizer.explain(principal, options.host, operation, resource.type, resource.name)
        ]
    ]
    readable = [
        topic
        for topic in _INTERNAL_TOPICS
        if authorizer.explain(
            principal, options.host, Operation.READ, ResourceType.TOPIC, topic
        ).allowed
    ]
    keys = ("operation", "allowed", "reason")
    data: dict[str, Any] = {
        "answers": [dict(zip(keys, answer, strict=True)) for answer in answers],
        "reads_internal_topics": readable,
    }
    print_result(options, data, _check_lines(options, answers, readable))
    if not all(is_allowed for _, is_allowed, _ in answers):
        hint = "" if options.super_users else "; give the broker's super users with --super-users"
        raise NotFoundError(f"not all of these operations are allowed{hint}")


def _check_lines(
    options: argparse.Namespace, answers: list[tuple[str, bool, str]], readable: list[str]
) -> Iterator[str]:
    for name, is_allowed, reason in answers:
        yield f"{name}: {'yes' if is_allowed else 'no'} ({shown(reason)})"
    yield from _useless_operations(options)
    for topic in readable:
        yield (f"Warning: {shown(options.principal)} may read {topic}, with the data of all groups")


def _useless_operations(options: argparse.Namespace) -> list[str]:
    """Warnings about operations that do not exist on the resource's type, such as WRITE on a group.

    A broker stores such rules, as Kafka does, but no request needs them.
    """
    kind = options.resource.type
    known = (Operation.ALL, *OPERATIONS[kind])
    return [
        f"Warning: no request needs {operation.name} on a {kind.name}; the operations are "
        f"{', '.join(member.name for member in known)}"
        for operation in options.operations
        if operation not in known
    ]
