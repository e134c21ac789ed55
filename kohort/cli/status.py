"""``kohort status``: a cluster's brokers, disks and partitions at a glance."""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.groups import groups_of
from kohort.admin.topics import Directory, directories
from kohort.cli.admin_http import Json, fetch
from kohort.cli.broker_http import CONSOLE, http_of
from kohort.cli.commands import run
from kohort.cli.errors import CommandError
from kohort.cli.options import add_kafka, cluster_of, print_result, security_of
from kohort.cli.output import table
from kohort.formats.text import counted, duration, shown
from kohort.protocol.messages.metadata import MetadataResponse

_TIMES: Final = ("up_ms", "event_loop_delay_ms")
_PROBLEMS: Final = {
    "without_leader": "without a leader",
    "under_replicated": "replicas are out of sync",
}
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Shows brokers, disk space, partitions without a leader or with too few replicas, and of "
        "a Kohort broker whose console can be reached, how long it has been up."
    )
    add_kafka(parser)
    parser.set_defaults(run=run, handler=_status)
    parser.epilog = "Exit codes: 0; 2 usage; 3 no broker answers, or it is starting; 4 it refuses."


def _status(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        metadata = cluster.metadata(None)
        brokers = [
            {
                "id": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "directories": _directories(cluster, metadata, broker.node_id),
            }
            for broker in sorted(metadata.brokers, key=lambda broker: broker.node_id)
        ]
        groups = [
            group for connection in cluster.brokers() for group in groups_of(cluster, connection)
        ]
        console = http_of(cluster, CONSOLE)
    partitions = [
        (f"{topic.name}-{partition.partition_index}", partition)
        for topic in metadata.topics
        for partition in topic.partitions
    ]
    data: Json = {
        "cluster_id": metadata.cluster_id,
        "brokers": brokers,
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "without_leader": [name for name, partition in partitions if partition.leader_id < 0],
        "under_replicated": [
            name
            for name, partition in partitions
            if len(partition.isr_nodes) < len(partition.replica_nodes)
        ],
        "groups": len(groups),
        "kohort": None if console is None else _of_kohort(options, console),
    }
    print_result(options, data, _lines(data))


def _directories(cluster: Cluster, metadata: MetadataResponse, node_id: int) -> list[Json] | None:
    """The data directories of a broker; None if the user may not see them."""
    broker = cluster.broker(metadata, node_id)
    assert broker is not None
    try:
        return [directory._asdict() for directory in directories(cluster, broker)]
    except RefusedError:
        return None


def _of_kohort(options: argparse.Namespace, url: str) -> Json | None:
    """Figures from the broker's console; None if it cannot be reached or refuses the user."""
    with suppress(CommandError):
        figures = fetch(url, "/api/broker", options.timeout, security_of(options))
        return {
            "version": figures["version"],
            "up_ms": figures["at_ms"] - figures["began_ms"],
            "connections": figures["connections"],
            "event_loop_delay_ms": figures["loop_lag"]["recent_maximum_ms"],
        }
    return None


def _lines(data: Json) -> Iterator[str]:
    yield f"cluster {shown(str(data['cluster_id']))}"
    if data["kohort"] is not None:
        up, delay = (duration(round(data["kohort"][name])) for name in _TIMES)
        connections = counted(data["kohort"]["connections"], "connection")
        version = shown(str(data["kohort"]["version"]))
        yield f"Kohort {version}, up for {up}, {connections}, event loop delay up to {delay}"
    yield ""
    rows: list[tuple[Any, ...]] = []
    for broker in data["brokers"]:
        known: list[Json] = broker["directories"] or [{}]
        for fields in known:
            directory = Directory(**fields) if fields else None
            rows.append((broker["id"], broker["address"], broker["rack"], *_cells(directory)))
    yield from table(("BROKER", "ADDRESS", "RACK", "DIRECTORY", "DATA", "FREE", "OF"), rows)
    yield ""
    topics, partitions = counted(data["topics"], "topic"), counted(data["partitions"], "partition")
    yield f"{topics}, {partitions}, {counted(data['groups'], 'group')}"
    for name, what in _PROBLEMS.items():
        if data[name]:
            yield f"{what}: {', '.join(map(shown, data[name]))}"


def _cells(directory: Directory | None) -> tuple[str | None, ...]:
    if directory is None:
        return None, None, None, None
    path = f"{directory.path} is offline" if directory.error else directory.path
    sizes = (directory.data_bytes, directory.free_bytes, directory.volume_bytes)
    return path, *map(_size_text, sizes)


def _size_text(size: int | None) -> str | None:
    if size is None:
        return None
    amount, unit = float(size), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{size} B"
