"""``kohort config get``, ``set`` and ``delete``: configs that a cluster stores."""

import argparse
from typing import Any, Final, NamedTuple

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.configs import Kind, Operation, Resource, Source, alter, change, described
from kohort.cli.commands import Commands
from kohort.cli.errors import NotFoundError, no_topic
from kohort.cli.options import add_kafka, assignment, cluster_of, print_result
from kohort.cli.output import table
from kohort.client.net.blocking import BlockingConnection
from kohort.formats.text import shown
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.incremental_alter_configs import AlterableConfig

HIDDEN: Final = "(hidden)"
"""Value of passwords and of other configs that brokers do not show."""
ALL_BROKERS: Final = Resource(Kind.BROKER, "")
"""The defaults of all brokers."""

_SOURCES: Final = {
    Source.TOPIC: "topic",
    Source.BROKER: "broker",
    Source.ALL_BROKERS: "all brokers",
    Source.FILE: "server.properties",
    Source.DEFAULT: "default",
    Source.GROUP: "group",
}
_SET_HERE: Final = {
    Kind.TOPIC: {Source.TOPIC},
    Kind.BROKER: {Source.BROKER, Source.ALL_BROKERS, Source.FILE},
    Kind.GROUP: {Source.GROUP},
}
"""The sources whose values `get` shows by default."""


class Entry(NamedTuple):
    of: str
    name: str
    value: str | None
    source: str
    is_dynamic: bool


def add_stored(commands: Commands) -> None:
    command = commands.add("get", "configs of brokers, a topic or a group, from a broker", _get)
    command.add_argument(
        "names", metavar="NAME", nargs="*", help="configs to show (all that are not defaults)"
    )
    command.add_argument("--all", action="store_true", help="include defaults")
    _add_resource(command, brokers="each broker")

    command = commands.add("set", "change configs while brokers run", _set)
    command.add_argument("configs", metavar="NAME=VALUE", nargs="+", type=assignment)
    _add_change(command)

    command = commands.add("delete", "reset configs to their defaults while brokers run", _delete)
    command.add_argument("names", metavar="NAME", nargs="+")
    _add_change(command)


def _add_change(parser: argparse.ArgumentParser) -> None:
    _add_resource(parser, brokers="all brokers")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="let the broker validate the change, but change nothing",
    )


def _add_resource(parser: argparse.ArgumentParser, *, brokers: str) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--topic", metavar="TOPIC", help="configs of this topic")
    which.add_argument("--group", metavar="GROUP", help="configs of this group")
    which.add_argument(
        "--broker", metavar="ID", type=int, help=f"configs of this broker (default: {brokers})"
    )
    add_kafka(parser)


def _get(options: argparse.Namespace) -> None:
    resources = [_resource(options)]
    with cluster_of(options) as cluster:
        if resources == [ALL_BROKERS]:
            brokers = sorted(broker.node_id for broker in cluster.metadata([]).brokers)
            resources = [Resource(Kind.BROKER, str(broker)) for broker in brokers]
        entries = [
            entry for resource in resources for entry in _entries(cluster, resource, options)
        ]
    if missing := sorted(set(options.names) - {entry.name for entry in entries}):
        raise NotFoundError(f"no config {missing[0]!r}; `kohort config list` describes them")
    data = {"configs": [entry._asdict() for entry in entries]}
    rows = [[entry.of, f"{entry.name}={entry.value or ''}", entry.source] for entry in entries]
    print_result(options, data, table(["OF", "CONFIG", "SET BY"], rows))


def _entries(cluster: Cluster, resource: Resource, options: argparse.Namespace) -> list[Entry]:
    connection = _broker_of(cluster, resource) or cluster.controller()
    names = options.names or None
    try:
        configs = described(cluster, connection, resource, names, _text(resource))
    except RefusedError as error:
        if error.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise no_topic(resource.name) from error
        raise
    return [
        Entry(
            _text(resource),
            config.name,
            HIDDEN if config.is_sensitive else config.value,
            _SOURCES.get(Source(config.config_source), "other"),
            not config.read_only,
        )
        for config in sorted(configs, key=lambda config: config.name)
        if names or options.all or config.config_source in _SET_HERE[resource.kind]
    ]


def _set(options: argparse.Namespace) -> None:
    changes = [change(name, Operation.SET, value) for name, value in options.configs]
    texts = [f"{name}={HIDDEN if _is_secret(name) else value}" for name, value in options.configs]
    _alter(options, changes, texts)


def _is_secret(name: str) -> bool:
    return any(part in name for part in ("password", "jaas", "keystore.key"))


def _delete(options: argparse.Namespace) -> None:
    changes = [change(name, Operation.DELETE) for name in options.names]
    _alter(options, changes, [f"{name} reset" for name in options.names])


def _alter(options: argparse.Namespace, changes: list[AlterableConfig], texts: list[str]) -> None:
    resource = _resource(options)
    with cluster_of(options) as cluster:
        broker = _broker_of(cluster, resource)
        what = _text(resource)
        alter(cluster, {resource: changes}, what, is_dry_run=options.dry_run, broker=broker)
    prefix = "would be changed: " if options.dry_run else ""
    data: dict[str, Any] = {"of": what, "changes": texts, "dry_run": options.dry_run}
    print_result(options, data, [f"{shown(what)}: {prefix}{', '.join(map(shown, texts))}"])


def _resource(options: argparse.Namespace) -> Resource:
    """Return the resource that the options name; all brokers if they name none."""
    if options.topic is not None:
        return Resource(Kind.TOPIC, options.topic)
    if options.group is not None:
        return Resource(Kind.GROUP, options.group)
    return ALL_BROKERS if options.broker is None else Resource(Kind.BROKER, str(options.broker))


def _broker_of(cluster: Cluster, resource: Resource) -> BlockingConnection | None:
    """Return the broker that has the configs, because other brokers reject the request; None if any
    broker will do.

    Raises:
        NotFoundError, DisconnectedError
    """
    if resource.kind != Kind.BROKER or resource == ALL_BROKERS:
        return None
    broker = cluster.broker(cluster.metadata([]), int(resource.name))
    if broker is None:
        raise NotFoundError(f"there is no broker {resource.name}; `kohort status` lists them")
    return broker


def _text(resource: Resource) -> str:
    if resource == ALL_BROKERS:
        return "all brokers"
    return f"{resource.kind.name.lower()} {resource.name}"
