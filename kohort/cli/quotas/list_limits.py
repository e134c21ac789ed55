"""``kohort quotas list``: all limits on clients."""

import argparse

from kohort.admin.quotas import list_limits
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.quotas.options import shown_entity
from kohort.cli.table import table
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        limits = list_limits(cluster)
    if options.json:
        print_json({"quotas": [{"entity": dict(one.entity), **one.values} for one in limits]})
        return
    rows = [
        [shown(shown_entity(one.entity)), key, f"{value:g}"]
        for one in limits
        for key, value in sorted(one.values.items())
    ]
    for line in table(["FOR", "LIMIT", "VALUE"], sorted(rows)):
        print(line)
