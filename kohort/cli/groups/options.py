"""Options that several commands have, and what they lead to."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from kohort.cli.admin_http import Json, fetch
from kohort.cli.command_config import in_file_words, read_command_config
from kohort.cli.errors import NotFoundError, UnavailableError, UsageError
from kohort.client.core.errors import ConfigError, ConsumerError
from kohort.client.net.address import parse_bootstrap
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.security import SecurityConfig
from kohort.wire.cluster import Cluster, RefusedError

BOOTSTRAP_SERVER: Final = "localhost:9092"
HTTP: Final = "http://localhost:9308"
TIMEOUT_S: Final = 10.0
TIMEOUT_S_MAX: Final = 3_600
COUNT_MAX: Final = 1_000


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs: the whole answer")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long to wait for an answer (%(default)s)",
    )


def add_kafka(parser: argparse.ArgumentParser) -> None:
    """For what every Kafka broker can be asked."""
    parser.add_argument(
        "--bootstrap-server",
        default=BOOTSTRAP_SERVER,
        metavar="HOST:PORT[,...]",
        help="a broker, Kohort's or Kafka's (%(default)s)",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties for a cluster with TLS or SASL, as Kafka's own tools take them",
    )
    add_common(parser)


def add_http(parser: argparse.ArgumentParser) -> None:
    """For what only Kohort can be asked."""
    parser.add_argument(
        "--http",
        "--admin-url",
        default=HTTP,
        metavar="URL",
        help="the HTTP port of a Kohort broker, kohort.metrics.port (%(default)s)",
    )
    parser.add_argument(
        "--last",
        type=count,
        default=1,
        metavar="N",
        help="so many rebalances, the newest last (%(default)s)",
    )
    add_common(parser)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value <= TIMEOUT_S_MAX:
        raise argparse.ArgumentTypeError(f"a number above 0, up to {TIMEOUT_S_MAX}")
    return value


def count(text: str) -> int:
    """A number of things, from 1."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= value <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"a number from 1 to {COUNT_MAX}")
    return value


@contextmanager
def cluster_of(options: argparse.Namespace) -> Iterator[Cluster]:
    """The cluster to be asked; what it raises becomes an error of the command.

    Raises:
        UsageError, UnavailableError
    """
    try:
        servers = parse_bootstrap(options.bootstrap_server, "--bootstrap-server")
    except ConfigError as error:
        raise UsageError(str(error)) from error
    path = options.command_config
    security = SecurityConfig() if path is None else read_command_config(path)
    try:
        with Cluster(servers, options.timeout, security) as cluster:
            yield cluster
    except DisconnectedError as error:
        raise UnavailableError(
            f"{in_file_words(str(error))}\nIs the broker running? --bootstrap-server tells where it"
            " is, and --command-config how to get in."
        ) from error
    except ConsumerError as error:
        raise UnavailableError(in_file_words(str(error))) from error
    except RefusedError as error:
        raise UnavailableError(str(error)) from error


def history_of(options: argparse.Namespace, *, kind: str | None = "rebalance") -> Json:
    """The answer of GET /groups/{group}/rebalances. Raises CommandError."""
    query = f"last={options.last}" + (f"&kind={kind}" if kind else "")
    path = f"/groups/{quote(options.group, safe='', errors='surrogateescape')}/rebalances?{query}"
    try:
        return fetch(options.http, path, options.timeout)
    except NotFoundError as error:
        raise NotFoundError(
            f"there is no group {options.group!r}, and none is remembered; "
            "`kohort groups list` shows which there are"
        ) from error


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2))
