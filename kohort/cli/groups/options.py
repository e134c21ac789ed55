"""Options of the commands that ask a broker's HTTP port, and what they lead to."""

import argparse
from typing import Final
from urllib.parse import quote

from kohort.admin.history import group_history
from kohort.cli.admin_http import Json, fetch
from kohort.cli.errors import NotFoundError, UnavailableError
from kohort.cli.options import add_command_config, add_common, cluster_of, security_of
from kohort.protocol.errors import DecodeError

HTTP: Final = "http://localhost:9308"
COUNT_MAX: Final = 1_000


def add_http(
    parser: argparse.ArgumentParser,
    *,
    last: int = 1,
    last_help: str = "so many rebalances, the newest last (%(default)s)",
) -> None:
    """Add the options of commands that only Kohort can answer; `last` is the default of --last."""
    parser.add_argument(
        "--http",
        "--admin-url",
        default=HTTP,
        metavar="URL",
        help="the HTTP port of a Kohort broker, kohort.metrics.port (%(default)s)",
    )
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="a Kohort broker's Kafka port instead, where its HTTP port is out of reach; what is "
        "stored is told, not what hangs just now",
    )
    # A history is asked for while it is made: a broker that is just started has none.
    parser.set_defaults(wait=0.0)
    add_command_config(parser)
    parser.add_argument(
        "--last",
        type=count,
        default=last,
        metavar="N",
        help=last_help,
    )
    add_common(parser)


def count(text: str) -> int:
    """A number of things, from 1."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= value <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"a number from 1 to {COUNT_MAX}")
    return value


def history_of(options: argparse.Namespace, *, kind: str | None = "rebalance") -> Json:
    """The answer of GET /groups/{group}/rebalances, or what the topic has of it.

    Raises CommandError.
    """
    if options.bootstrap_server is not None:
        return _stored_history(options, kind)
    query = f"last={options.last}" + (f"&kind={kind}" if kind else "")
    path = f"/groups/{quote(options.group, safe='', errors='surrogateescape')}/rebalances?{query}"
    try:
        return fetch(options.http, path, options.timeout, security_of(options))
    except NotFoundError as error:
        raise _unknown_group(options.group) from error


def _stored_history(options: argparse.Namespace, kind: str | None) -> Json:
    with cluster_of(options) as cluster:
        try:
            told = group_history(cluster, options.group, last=options.last, kind=kind)
        except DecodeError as error:
            raise UnavailableError(f"the history cannot be read: {error}") from error
    if told is None:
        raise UnavailableError(
            f"{options.bootstrap_server} keeps no history: either no group has rebalanced there "
            "yet, or it is a Kafka, whose log `kohort groups advise --from` and "
            "`kohort pipeline convert-log` read"
        )
    if not told["rebalances"] and told["state"] is None:
        raise _unknown_group(options.group)
    return told


def _unknown_group(group: str) -> NotFoundError:
    return NotFoundError(
        f"there is no group {group!r}, and none is remembered; "
        "`kohort groups list` shows which there are"
    )
