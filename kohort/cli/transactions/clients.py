"""The clients that transactions belong to: Kafka's protocol does not tell, but a Kohort broker's
HTTP port does.
"""

import argparse
from typing import Final, NamedTuple
from urllib.parse import quote

from kohort.admin.transactions import Described, Held
from kohort.cli.admin_http import Json, fetch
from kohort.cli.errors import CommandError
from kohort.cli.options import security_of
from kohort.client.net.address import parse_bootstrap
from kohort.formats.text import shown

HTTP: Final = "http://localhost:9308"
_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_LISTED_MAX: Final = 10_000


class Client(NamedTuple):
    """The last client that added to a transaction."""

    client_id: str
    host: str
    """The address as Kafka shows it: "/127.0.0.1"."""

    def __str__(self) -> str:
        return f"client {shown(self.client_id)} at {self.host.removeprefix('/')}"


def add_http(parser: argparse.ArgumentParser) -> None:
    """Where to ask."""
    parser.add_argument(
        "--http",
        metavar="URL",
        help="the HTTP port of a Kohort broker, kohort.metrics.port, which also tells whose client"
        f" it is ({HTTP} is tried if the broker is on this machine)",
    )


def client_of(options: argparse.Namespace, described: Described) -> Client | None:
    """The client behind a transactional id; None if that is not known.

    Raises:
        CommandError: `--http` was given, and nothing can be found out there.
    """
    told = _ask(options, f"/transactions/{_quoted(described.transactional_id)}")
    is_same = (
        told is not None
        and told.get("producer_id") == described.producer_id
        and told.get("producer_epoch") == described.producer_epoch
    )
    return _client(told) if told is not None and is_same else None


def clients_of(options: argparse.Namespace, held: Held) -> dict[int, Client]:
    """The same by producer id, for those that have a transaction open in a partition."""
    if not held.open:
        return {}
    limit = min(len(held.open), _LISTED_MAX)
    path = f"/topics/{_quoted(options.topic)}/{options.partition}/transactions?limit={limit}"
    told = _ask(options, path)
    open_from = {one.producer_id: one.current_txn_start_offset for one in held.open}
    found: dict[int, Client] = {}
    for one in told.get("open", ()) if told is not None else ():
        client = _client(one)
        # Another broker than the one that was asked has other transactions.
        if client is not None and open_from.get(one["producer_id"]) == one["first_offset"]:
            found[one["producer_id"]] = client
    return found


def _ask(options: argparse.Namespace, path: str) -> Json | None:
    if options.http is not None:
        return fetch(options.http, path, options.timeout, security_of(options))
    servers = parse_bootstrap(options.bootstrap_server, "--bootstrap-server")
    if not any(server.host in _HERE for server in servers):
        return None
    try:
        # A password is for whom the user names, not for who may be there.
        return fetch(HTTP, path, options.timeout)
    except CommandError:
        return None


def _client(told: Json) -> Client | None:
    client_id = told.get("client_id")
    return None if client_id is None else Client(client_id, str(told.get("client_host")))


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")
