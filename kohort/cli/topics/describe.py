"""``kohort topics describe``: partitions with their offsets and sizes, and configs."""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from kohort.admin.cluster import RefusedError
from kohort.admin.topics import Config, Topic, describe_topic, topic_configs
from kohort.cli.not_found import no_topic
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table
from kohort.cli.topics.options import add_names, refused
from kohort.formats.text import counted, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    add_kafka(parser)
    parser.add_argument(
        "--all-configs", action="store_true", help="also those that were not set on the topic"
    )
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    found: list[tuple[Topic, list[Config]]] = []
    with cluster_of(options) as cluster:
        for name in options.topics:
            try:
                topic = describe_topic(cluster, name)
                configs = topic_configs(cluster, name) if topic else []
            except RefusedError as error:
                raise refused(error) from error
            if topic is None:
                raise no_topic(name)
            wanted = [one for one in configs if options.all_configs or one.is_set_here]
            found.append((topic, wanted))
    if options.json:
        print_json({"topics": [as_json(*one) for one in found]})
        return
    for place, one in enumerate(found):
        if place:
            print()
        for line in lines(*one):
            print(line)


def lines(topic: Topic, configs: Iterable[Config]) -> Iterator[str]:
    """What is printed."""
    parts = [
        f"{shown(topic.name)}: {counted(len(topic.partitions), 'partition')}",
        counted(topic.replication_factor, "replica"),
        f"id {topic.topic_id}",
    ]
    yield ", ".join(parts)
    for config in configs:
        yield f"  {config.name}={shown(config.value or '')}"
    yield ""
    rows = [
        (
            one.index,
            one.leader,
            ",".join(map(str, one.replicas)),
            ",".join(map(str, one.in_sync)),
            one.start,
            one.end,
            one.size_bytes,
        )
        for one in topic.partitions
    ]
    head = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", "BYTES")
    yield from table(head, rows)


def as_json(topic: Topic, configs: Iterable[Config]) -> dict[str, Any]:
    """What --json prints of one topic."""
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
        "configs": {one.name: one.value for one in configs},
        "partitions": [
            {
                "partition": one.index,
                "leader": one.leader,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
                "start": one.start,
                "end": one.end,
                "size_bytes": one.size_bytes,
            }
            for one in topic.partitions
        ],
    }
