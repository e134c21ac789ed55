"""``kohort transactions list``: the transactional ids of a cluster, by name."""

import argparse
from dataclasses import asdict

from kohort.admin.transactions import list_transactions
from kohort.cli.options import add_kafka, cluster_of, print_json, seconds
from kohort.cli.table import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only those in this state, as Ongoing; may be given several times",
    )
    parser.add_argument(
        "--open-for",
        type=seconds,
        metavar="SECONDS",
        help="only those whose transaction began longer ago",
    )
    parser.add_argument(
        "--id-pattern", metavar="REGEX", help="only ids that match this expression as a whole"
    )
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    open_for_ms = -1 if options.open_for is None else int(options.open_for * 1000)
    with cluster_of(options) as cluster:
        listed = list_transactions(
            cluster, states=options.state, open_for_ms=open_for_ms, pattern=options.id_pattern
        )
    if options.json:
        print_json({"transactions": [asdict(one) for one in listed]})
        return
    if not listed:
        print("no transactional ids")
        return
    rows = [(one.transactional_id, one.state, one.producer_id, one.coordinator) for one in listed]
    for line in table(("TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"), rows):
        print(line)
