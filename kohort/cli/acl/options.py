"""How principals, operations and resources are written on the command line of `kohort acl`."""

import argparse
from ipaddress import ip_address
from typing import Final, NamedTuple

from kohort.broker.core.security.acls import (
    ANY,
    CLUSTER_NAME,
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
from kohort.broker.core.security.session import USER
from kohort.cli.options import add_kafka

_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "user": ResourceType.USER,
}
_RESOURCES: Final = f"{', '.join(f'{one}:NAME' for one in _TYPES)} or cluster"
_OPERATIONS: Final = {one.name.lower().replace("_", "-"): one for one in Operation}


class Resource(NamedTuple):
    """One resource, or the beginning of the names of several."""

    type: ResourceType
    name: str


def resource(text: str) -> Resource:
    """The resource of ``topic:orders``, ``group:billing``, ``cluster``."""
    if text == "cluster":
        return Resource(ResourceType.CLUSTER, CLUSTER_NAME)
    kind, _, name = text.partition(":")
    if kind not in _TYPES or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no resource: {_RESOURCES}")
    return Resource(_TYPES[kind], name)


def principal(text: str) -> str:
    """``alice`` means ``User:alice``, and ``*`` everybody."""
    kind, colon, _ = text.partition(":")
    if not colon:
        return f"{USER}:{text}"
    if kind != USER and kind.lower() == USER.lower():
        # A rule for it would never apply.
        raise argparse.ArgumentTypeError(f"{text!r} has to begin with {USER}:, in this spelling")
    return text


def host(text: str) -> str:
    """A numeric address as brokers compare it, or ``*`` for every one."""
    if text == WILDCARD:
        return text
    try:
        ip_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no numeric address: brokers compare the text of addresses, and no name or"
            " network ever applies"
        ) from None
    return host_text(text)


def operation(text: str) -> Operation:
    """One of Kafka's, in small letters: ``describe-configs``."""
    found = _OPERATIONS.get(text.lower().replace("_", "-"))
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(_OPERATIONS)}")
    return found


def add_rule(parser: argparse.ArgumentParser) -> None:
    """All that makes a rule."""
    parser.add_argument(
        "principal",
        type=principal,
        metavar="PRINCIPAL",
        help="a user, as in alice or User:alice; '*' is everybody",
    )
    parser.add_argument(
        "operations",
        type=operation,
        metavar="OPERATION",
        nargs="+",
        help=f"{', '.join(_OPERATIONS)}",
    )
    parser.add_argument(
        "resource",
        type=resource,
        metavar="RESOURCE",
        help=f"{_RESOURCES}; 'topic:*' is every topic",
    )


def idle(options: argparse.Namespace) -> list[str]:
    """Sentences about operations that nothing asks for on such a resource, as WRITE on a group.

    A broker keeps rules for them, as Kafka does, and they never apply.
    """
    known = (Operation.ALL, *OPERATIONS[options.resource.type])
    kind = options.resource.type.name
    return [
        f"Beware: nothing asks for {one.name} on a {kind}; there are "
        f"{', '.join(operation.name for operation in known)}"
        for one in options.operations
        if one not in known
    ]


def add_filter(parser: argparse.ArgumentParser) -> None:
    """What narrows the rules down; without any of it all are meant."""
    parser.add_argument("--principal", type=principal)
    parser.add_argument("--operation", type=operation)
    parser.add_argument("--resource", type=resource, help="rules of exactly this name")
    parser.add_argument(
        "--matching", action="store_true", help="with --resource: all rules that apply to it"
    )


def wanted(options: argparse.Namespace) -> RuleFilter:
    """The filter that the options make."""
    of = options.resource
    return RuleFilter(
        resource_type=ANY if of is None else of.type,
        resource_name=None if of is None else of.name,
        pattern=MATCH if options.matching else ANY,
        principal=options.principal,
        operation=options.operation or ANY,
    )


def rules_of(options: argparse.Namespace) -> list[Rule]:
    """One rule for each operation that was named."""
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    permission = Permission.DENY if options.deny else Permission.ALLOW
    of = options.resource
    return [
        Rule(of.type, of.name, pattern, options.principal, options.host, one, permission)
        for one in options.operations
    ]


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where the broker is."""
    add_kafka(parser)
