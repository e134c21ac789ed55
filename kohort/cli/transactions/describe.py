"""``kohort transactions describe``: how far the transaction of an id is, and what it reaches."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict

from kohort.admin.transactions import Described, describe_transaction
from kohort.cli.errors import NotFoundError
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table
from kohort.cli.transactions.clients import Client, add_http, client_of
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("transactional_id", metavar="ID")
    add_http(parser)
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        described = describe_transaction(cluster, options.transactional_id)
    if described is None:
        raise NotFoundError(
            f"there is no transactional id {options.transactional_id!r}; "
            "`kohort transactions list` shows which there are"
        )
    client = client_of(options, described)
    if options.json:
        print_json({**asdict(described), "client": client and client._asdict()})
        return
    for line in lines(described, client, time.time() * 1000):
        print(line)


def lines(described: Described, client: Client | None, now_ms: float) -> Iterator[str]:
    """What is printed."""
    name = shown(described.transactional_id)
    producer = f"producer {described.producer_id}, epoch {described.producer_epoch}"
    yield f"{name}: {described.state}, {producer} (coordinator {described.coordinator})"
    if client is not None:
        yield f"Last heard of from {client}."
    timeout = f"{described.timeout_ms / 1000:g} s"
    if described.partitions:
        age_s = max(0.0, now_ms - described.start_ms) / 1000
        yield f"Open for {age_s:.0f} s; it is aborted after {timeout}."
        yield ""
        yield from table(("TOPIC", "PARTITION"), described.partitions)
    else:
        yield f"No transaction is open; one would be aborted after {timeout}."
