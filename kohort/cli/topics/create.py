"""``kohort topics create``: create topics."""

import argparse

from kohort.admin.cluster import RefusedError
from kohort.admin.topics import create_topic
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.topics.options import add_config, add_dry_run, add_names, configs_of, refused
from kohort.formats.text import shown
from kohort.protocol.errors import ErrorCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    add_kafka(parser)
    parser.add_argument(
        "--partitions",
        type=int,
        default=-1,
        metavar="N",
        help="how many (the broker's num.partitions)",
    )
    parser.add_argument(
        "--replication-factor",
        type=int,
        default=-1,
        metavar="N",
        help="copies of each partition (the broker's default.replication.factor)",
    )
    add_config(parser)
    parser.add_argument(
        "--if-not-exists", action="store_true", help="leave one that exists as it is"
    )
    add_dry_run(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    configs = configs_of(options.config)
    outcomes: dict[str, str] = {}
    with cluster_of(options) as cluster:
        for name in options.topics:
            try:
                create_topic(
                    cluster,
                    name,
                    partitions=options.partitions,
                    replication_factor=options.replication_factor,
                    configs=configs,
                    is_dry_run=options.dry_run,
                )
            except RefusedError as error:
                exists = error.error == ErrorCode.TOPIC_ALREADY_EXISTS
                if not (exists and options.if_not_exists):
                    raise refused(error) from error
                outcomes[name] = "exists"
            else:
                outcomes[name] = "could be created" if options.dry_run else "created"
            if not options.json:
                print(f"{shown(name)}: {outcomes[name]}")
    if options.json:
        print_json({"topics": outcomes})
