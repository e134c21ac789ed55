"""``kohort topics delete``: delete topics with all their records."""

import argparse

from kohort.admin.cluster import RefusedError
from kohort.admin.topics import delete_topic
from kohort.cli.errors import NotFoundError
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.topics.options import add_names, refused
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    add_kafka(parser)
    parser.add_argument("--if-exists", action="store_true", help="say nothing of one that is gone")
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    outcomes: dict[str, str] = {}
    with cluster_of(options) as cluster:
        for name in options.topics:
            try:
                delete_topic(cluster, name)
            except RefusedError as error:
                told = refused(error)
                if not (options.if_exists and isinstance(told, NotFoundError)):
                    raise told from error
                outcomes[name] = "there is none"
            else:
                outcomes[name] = "deleted"
            if not options.json:
                print(f"{shown(name)}: {outcomes[name]}")
    if options.json:
        print_json({"topics": outcomes})
