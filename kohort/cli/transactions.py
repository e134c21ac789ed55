"""``kohort transactions``: transactional producers, and transactions that block consumers.

Uses Kafka's protocol (KIP-664), so any cluster since Kafka 3.0 will do. Kafka's protocol does not
report the clients of transactions; a Kohort broker's HTTP port does.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from kohort.admin.transactions import (
    Described,
    Held,
    abort_in_partition,
    describe_transaction,
    held_back,
    list_transactions,
)
from kohort.cli.admin_http import Json, fetch
from kohort.cli.broker_http import http_of
from kohort.cli.commands import Commands
from kohort.cli.errors import CommandError, NotFoundError, UsageError
from kohort.cli.options import (
    DURATION,
    add_kafka,
    cluster_of,
    print_result,
    print_rows,
    seconds,
    security_of,
)
from kohort.cli.output import table
from kohort.formats.text import counted, shown

_LISTED_MAX: Final = 10_000
"""Largest `limit` that the HTTP port accepts."""

_OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Client(NamedTuple):
    """The last client that added partitions or offsets to a transaction."""

    client_id: str
    host: str
    """The address as Kafka shows it: "/127.0.0.1"."""

    def __str__(self) -> str:
        return f"client {shown(self.client_id)} at {self.host.removeprefix('/')}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = Commands(parser, failure="no such transactional id, partition or transaction")

    command = commands.add("list", "transactional ids and their states", _list)
    command.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only those in this state, as Ongoing; repeatable",
    )
    command.add_argument(
        "--open-for",
        type=seconds,
        metavar=DURATION,
        help="only those with a transaction open for longer than this",
    )
    command.add_argument(
        "--id-pattern", metavar="REGEX", help="only ids that fully match this expression"
    )
    add_kafka(command)

    command = commands.add("describe", "one transaction, with its partitions", _describe)
    command.add_argument("transactional_id", metavar="ID")
    _add_http(command)
    add_kafka(command)

    command = commands.add("why", "what holds read_committed consumers back", _why)
    _add_partition(command)
    _add_http(command)
    add_kafka(command)

    command = commands.add("abort", "abort a hanging transaction in a partition", _abort)
    _add_partition(command)
    command.add_argument(
        "start_offset",
        metavar="OFFSET",
        type=int,
        help="first offset of the transaction, as shown by `kohort transactions why`",
    )
    command.add_argument(
        "--force", action="store_true", help="abort even if the coordinator knows the transaction"
    )
    add_kafka(command)


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("partition", metavar="PARTITION", type=_index)


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError("a number from 0")
    return int(text)


def _add_http(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http",
        metavar="URL",
        help="HTTP port of a Kohort broker, kohort.metrics.port, which also reports the client"
        " (found through the broker)",
    )


def _list(options: argparse.Namespace) -> None:
    states, open_for_ms = options.state, -1
    if options.open_for is not None:
        open_for_ms = int(options.open_for * 1000)
        # Brokers apply the filter to ended transactions too, so request only open ones.
        states = states or _OPEN_STATES
    with cluster_of(options) as cluster:
        listed = list_transactions(
            cluster, states=states, open_for_ms=open_for_ms, pattern=options.id_pattern
        )
    titles = {
        "transactional_id": "TRANSACTIONAL ID",
        "state": "STATE",
        "producer_id": "PRODUCER ID",
        "coordinator": "COORDINATOR",
    }
    rows = list(map(asdict, listed))
    print_rows(options, "transactions", titles, rows, "no transactional ids")


def _describe(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        described = describe_transaction(cluster, options.transactional_id)
        url = options.http or http_of(cluster)
    if described is None:
        raise NotFoundError(
            f"unknown transactional id {options.transactional_id!r}; "
            "`kohort transactions list` shows all of them"
        )
    client = _client_of(options, url, described)
    data = {**asdict(described), "client": client and client._asdict()}
    print_result(options, data, _describe_lines(described, client, time.time() * 1000))


def _describe_lines(described: Described, client: Client | None, now_ms: float) -> Iterator[str]:
    name = shown(described.transactional_id)
    producer = f"producer {described.producer_id}, epoch {described.producer_epoch}"
    yield f"{name}: {described.state}, {producer} (coordinator {described.coordinator})"
    if client is not None:
        yield f"Last used by {client}."
    timeout = f"{described.timeout_ms / 1000:g} s"
    if described.partitions:
        age_s = max(0.0, now_ms - described.start_ms) / 1000
        yield f"Open for {age_s:.0f} s; it is aborted after {timeout}."
        yield ""
        yield from table(("TOPIC", "PARTITION"), described.partitions)
    else:
        yield f"No transaction is open; one would be aborted after {timeout}."


def _why(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        held = held_back(cluster, options.topic, options.partition)
        url = options.http or http_of(cluster)
    if held is None:
        raise _no_partition(options)
    clients = _clients_of(options, url, held)
    name = f"{shown(options.topic)}-{options.partition}"
    lines = _why_lines(name, held, clients, time.time() * 1000)
    print_result(options, _why_json(held, clients), lines)


def _why_lines(
    name: str, held: Held, clients: Mapping[int, Client], now_ms: float
) -> Iterator[str]:
    if not held.open:
        yield f"No transaction is open in {name}: read_committed consumers can read all of it."
        return
    first = held.open[0]
    behind = held.high_watermark - held.last_stable_offset
    yield (
        f"read_committed consumers of {name} can read up to offset {held.last_stable_offset},"
        f" {counted(behind, 'offset')} before its end: {_holder(held, clients)} has a transaction"
        " open from there."
    )
    yield ""
    rows = [
        (
            held.ids.get(producer.producer_id),
            producer.producer_id,
            producer.producer_epoch,
            producer.current_txn_start_offset,
            f"{max(0.0, now_ms - producer.last_timestamp) / 1000:.0f} s ago",
            *_client_columns(clients, producer.producer_id),
        )
        for producer in held.open
    ]
    columns = ("TRANSACTIONAL ID", "PRODUCER ID", "EPOCH", "OPEN FROM", "LAST BATCH")
    yield from table((*columns, "CLIENT", "HOST") if clients else columns, rows)
    if first.producer_id not in held.ids:
        yield ""
        yield (
            "No coordinator knows this producer, so nothing will end the transaction;"
            " `kohort transactions abort` can."
        )


def _holder(held: Held, clients: Mapping[int, Client]) -> str:
    """Name the producer of the first open transaction, and its client if known."""
    producer_id = held.open[0].producer_id
    transactional_id = held.ids.get(producer_id)
    if transactional_id is None:
        return f"producer {producer_id}"
    client = clients.get(producer_id)
    return shown(transactional_id) + (f" ({client})" if client is not None else "")


def _client_columns(clients: Mapping[int, Client], producer_id: int) -> tuple[str | None, ...]:
    if not clients:
        return ()
    client = clients.get(producer_id)
    return (None, None) if client is None else client


def _why_json(held: Held, clients: Mapping[int, Client]) -> dict[str, Any]:
    return {
        "high_watermark": held.high_watermark,
        "last_stable_offset": held.last_stable_offset,
        "open": [
            {
                "transactional_id": held.ids.get(producer.producer_id),
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "start_offset": producer.current_txn_start_offset,
                "last_timestamp_ms": producer.last_timestamp,
                "client": (client := clients.get(producer.producer_id)) and client._asdict(),
            }
            for producer in held.open
        ],
    }


def _abort(options: argparse.Namespace) -> None:
    """Abort a transaction in one partition, without its coordinator.

    Meant for transactions that no coordinator will end. Without --force, refuse if a coordinator
    knows the transaction, because it will end the transaction, after its timeout at the latest.
    """
    with cluster_of(options) as cluster:
        held = held_back(cluster, options.topic, options.partition)
        if held is None:
            raise _no_partition(options)
        producer = next(
            (
                producer
                for producer in held.open
                if producer.current_txn_start_offset == options.start_offset
            ),
            None,
        )
        if producer is None:
            raise NotFoundError(f"no open transaction begins at offset {options.start_offset}")
        transactional_id = held.ids.get(producer.producer_id)
        if transactional_id is not None and not options.force:
            raise UsageError(
                f"the coordinator knows this transaction, as {transactional_id!r}, and will end it;"
                " --force aborts it in this partition only, so that the transaction may no longer"
                " be atomic"
            )
        abort_in_partition(cluster, options.topic, options.partition, producer)
    print(
        f"Aborted the transaction of producer {producer.producer_id} that began at offset"
        f" {options.start_offset}."
    )


def _no_partition(options: argparse.Namespace) -> NotFoundError:
    return NotFoundError(f"no partition {options.partition} of topic {options.topic!r}")


def _client_of(options: argparse.Namespace, url: str | None, described: Described) -> Client | None:
    """Return the client of a transactional id; None if unknown.

    Raises:
        CommandError: --http was given, and the request failed.
    """
    data = _fetch(options, url, f"/transactions/{_quoted(described.transactional_id)}")
    is_same = (
        data is not None
        and data.get("producer_id") == described.producer_id
        and data.get("producer_epoch") == described.producer_epoch
    )
    return _client(data) if data is not None and is_same else None


def _clients_of(options: argparse.Namespace, url: str | None, held: Held) -> dict[int, Client]:
    """Return the known clients of a partition's open transactions, by producer id.

    Raises:
        CommandError: --http was given, and the request failed.
    """
    if not held.open:
        return {}
    limit = min(len(held.open), _LISTED_MAX)
    path = f"/topics/{_quoted(options.topic)}/{options.partition}/transactions?limit={limit}"
    data = _fetch(options, url, path)
    open_from = {producer.producer_id: producer.current_txn_start_offset for producer in held.open}
    clients: dict[int, Client] = {}
    for transaction in data.get("open", ()) if data is not None else ():
        client = _client(transaction)
        producer_id = transaction["producer_id"]
        # The HTTP port may be that of another broker, with other transactions.
        if client is not None and open_from.get(producer_id) == transaction["first_offset"]:
            clients[producer_id] = client
    return clients


def _fetch(options: argparse.Namespace, url: str | None, path: str) -> Json | None:
    if url is None:
        return None
    try:
        return fetch(url, path, options.timeout, security_of(options))
    except CommandError:
        if options.http is not None:
            raise
        return None


def _client(data: Json) -> Client | None:
    client_id = data.get("client_id")
    return None if client_id is None else Client(client_id, str(data.get("client_host")))


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")
