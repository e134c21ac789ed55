"""``kohort transactions why``: which transaction keeps read_committed consumers of a partition from
what has been written.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from typing import Any

from kohort.admin.transactions import Held, held_back
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table
from kohort.cli.transactions.clients import Client, add_http, clients_of
from kohort.cli.transactions.partition import add_partition, no_partition
from kohort.formats.text import counted, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_partition(parser)
    add_http(parser)
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        held = held_back(cluster, options.topic, options.partition)
    if held is None:
        raise no_partition(options)
    clients = clients_of(options, held)
    if options.json:
        print_json(as_json(held, clients))
        return
    name = f"{shown(options.topic)}-{options.partition}"
    for line in lines(name, held, clients, time.time() * 1000):
        print(line)


def lines(name: str, held: Held, clients: Mapping[int, Client], now_ms: float) -> Iterator[str]:
    """What is printed."""
    behind = held.high_watermark - held.last_stable_offset
    if not held.open:
        yield f"Nothing is open in {name}: read_committed consumers may read all of it."
        return
    first = held.open[0]
    holder = _holder(held, clients, first.producer_id)
    yield (
        f"read_committed consumers of {name} may read up to offset {held.last_stable_offset},"
        f" {counted(behind, 'offset')} before its end: {holder} has a transaction open from there."
    )
    yield ""
    rows = [
        (
            held.ids.get(one.producer_id),
            one.producer_id,
            one.producer_epoch,
            one.current_txn_start_offset,
            f"{max(0.0, now_ms - one.last_timestamp) / 1000:.0f} s ago",
            *_client_columns(clients, one.producer_id),
        )
        for one in held.open
    ]
    columns = ("TRANSACTIONAL ID", "PRODUCER ID", "EPOCH", "OPEN FROM", "LAST BATCH")
    yield from table((*columns, "CLIENT", "HOST") if clients else columns, rows)
    if first.producer_id not in held.ids:
        yield ""
        yield (
            "No coordinator knows this producer: nothing will end the transaction."
            " `kohort transactions abort` can."
        )


def _holder(held: Held, clients: Mapping[int, Client], producer_id: int) -> str:
    transactional_id = held.ids.get(producer_id)
    if transactional_id is None:
        return f"producer {producer_id}"
    client = clients.get(producer_id)
    return shown(transactional_id) + (f" ({client})" if client is not None else "")


def _client_columns(clients: Mapping[int, Client], producer_id: int) -> tuple[str | None, ...]:
    if not clients:
        return ()
    client = clients.get(producer_id)
    return (None, None) if client is None else (client.client_id, client.host)


def as_json(held: Held, clients: Mapping[int, Client]) -> dict[str, Any]:
    """What --json prints."""
    return {
        "high_watermark": held.high_watermark,
        "last_stable_offset": held.last_stable_offset,
        "open": [
            {
                "transactional_id": held.ids.get(one.producer_id),
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "start_offset": one.current_txn_start_offset,
                "last_timestamp_ms": one.last_timestamp,
                "client": (client := clients.get(one.producer_id)) and client._asdict(),
            }
            for one in held.open
        ],
    }
