"""``kohort topics list``: the topics of a cluster, by name."""

import argparse

from kohort.admin.topics import list_topics
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kafka(parser)
    parser.add_argument(
        "--internal", action="store_true", help="also __consumer_offsets and its like"
    )
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        topics = list_topics(cluster, internal=options.internal)
    if options.json:
        print_json(
            {
                "topics": [
                    {
                        "topic": one.name,
                        "topic_id": one.topic_id,
                        "partitions": len(one.partitions),
                        "replication_factor": one.replication_factor,
                        "internal": one.is_internal,
                    }
                    for one in topics
                ]
            }
        )
        return
    if not topics:
        print("no topics; `kohort topics create NAME` makes one")
        return
    rows = [(one.name, len(one.partitions), one.replication_factor) for one in topics]
    for line in table(("TOPIC", "PARTITIONS", "REPLICAS"), rows):
        print(line)
