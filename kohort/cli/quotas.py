"""``kohort quotas``: limits on clients of a Kohort or Kafka cluster."""

import argparse

from kohort.admin.access import Parts, change_limits, list_limits
from kohort.cli.commands import Commands
from kohort.cli.errors import NotFoundError, UsageError
from kohort.cli.options import add_kafka, cluster_of, print_result
from kohort.cli.output import table
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = Commands(parser, failure="no such limit")
    add_kafka(commands.add("list", "all limits", _list))

    command = commands.add("set", "set limits of a user, a client id, both, or an address", _set)
    command.add_argument(
        "limits", metavar="KEY=VALUE", nargs="+", type=_limit, help="producer_byte_rate=1048576"
    )
    _add_entity(command)

    command = commands.add("remove", "remove limits", _remove)
    command.add_argument("keys", metavar="KEY", nargs="*", help="default: all limits of the entity")
    _add_entity(command)


def _add_entity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="NAME", help="user name, without User:")
    parser.add_argument("--client-id", metavar="ID")
    parser.add_argument(
        "--default-user", action="store_true", help="users that have no limits of their own"
    )
    parser.add_argument(
        "--default-client-id",
        action="store_true",
        help="client ids that have no limits of their own",
    )
    parser.add_argument("--ip", metavar="ADDRESS", help="address of clients")
    parser.add_argument(
        "--default-ip", action="store_true", help="addresses that have no limits of their own"
    )
    add_kafka(parser)


def _limit(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    try:
        return key, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=NUMBER") from None


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _list(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        limits = list_limits(cluster)
    rows = [
        [shown(_entity_text(limit.entity)), key, _number(value)]
        for limit in limits
        for key, value in sorted(limit.values.items())
    ]
    data = {"quotas": [{"entity": dict(limit.entity), **limit.values} for limit in limits]}
    print_result(options, data, table(["FOR", "LIMIT", "VALUE"], sorted(rows)))


def _set(options: argparse.Namespace) -> None:
    entity = _entity_of(options)
    with cluster_of(options) as cluster:
        change_limits(cluster, entity, dict(options.limits))
    for key, value in options.limits:
        print(f"{shown(_entity_text(entity))}: {key}={_number(value)}")


def _remove(options: argparse.Namespace) -> None:
    entity = _entity_of(options)
    with cluster_of(options) as cluster:
        known = {frozenset(limit.entity): limit.values for limit in list_limits(cluster)}
        values = known.get(frozenset(entity), {})
        keys = options.keys or sorted(values)
        if not keys or not set(keys) <= set(values):
            raise NotFoundError("no such limit")
        change_limits(cluster, entity, {}, keys)
    for key in keys:
        print(f"{shown(_entity_text(entity))}: {key} removed")


def _entity_of(options: argparse.Namespace) -> Parts:
    parts: list[tuple[str, str | None]] = []
    for kind, name, is_default in (
        ("user", options.user, options.default_user),
        ("client-id", options.client_id, options.default_client_id),
        ("ip", options.ip, options.default_ip),
    ):
        if name is not None and is_default:
            raise UsageError(f"--{kind} and --default-{kind} cannot be combined")
        if kind == "user" and (name or "").startswith("User:"):
            raise UsageError("--user is the name without User:")
        if name is not None or is_default:
            parts.append((kind, name))
    if not parts:
        raise UsageError("give --user, --client-id, --ip, or one of the --default- options")
    return tuple(parts)


def _entity_text(entity: Parts) -> str:
    """Format an entity, such as ``user alice, client-id <default>``."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)
