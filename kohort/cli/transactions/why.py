"""``kohort transactions why``: which transaction keeps read_committed consumers of a partition from
what has been written.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

from kohort.broker.core.history.wording import counted, shown
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table
from kohort.cli.transactions.partition import add_partition, no_partition
from kohort.wire.transactions import Held, held_back


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_partition(parser)
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        held = held_back(cluster, options.topic, options.partition)
    if held is None:
        raise no_partition(options)
    if options.json:
        print_json(as_json(held))
        return
    for line in lines(f"{shown(options.topic)}-{options.partition}", held, time.time() * 1000):
        print(line)


def lines(name: str, held: Held, now_ms: float) -> Iterator[str]:
    """What is printed."""
    behind = held.high_watermark - held.last_stable_offset
    if not held.open:
        yield f"Nothing is open in {name}: read_committed consumers may read all of it."
        return
    first = held.open[0]
    holder = _holder(held, first.producer_id)
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
        )
        for one in held.open
    ]
    yield from table(("TRANSACTIONAL ID", "PRODUCER ID", "EPOCH", "OPEN FROM", "LAST BATCH"), rows)
    if first.producer_id not in held.ids:
        yield ""
        yield (
            "No coordinator knows this producer: nothing will end the transaction."
            " `kohort transactions abort` can."
        )


def _holder(held: Held, producer_id: int) -> str:
    transactional_id = held.ids.get(producer_id)
    return f"producer {producer_id}" if transactional_id is None else shown(transactional_id)


def as_json(held: Held) -> dict[str, Any]:
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
            }
            for one in held.open
        ],
    }
