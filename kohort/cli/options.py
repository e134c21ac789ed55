"""Options that several commands have, and what they lead to."""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kohort.admin.cluster import RETRY_S, Cluster, RefusedError, error_name
from kohort.cli.command_config import in_file_words, read_command_config
from kohort.cli.errors import RefusedCommandError, UnavailableError, UsageError
from kohort.client.core.errors import ConfigError, ConsumerError
from kohort.client.net.address import Address, parse_bootstrap
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.security import SecurityConfig
from kohort.protocol.errors import ErrorCode

BOOTSTRAP_SERVER: Final = "localhost:9092"
TIMEOUT_S: Final = 10.0
TIMEOUT_S_MAX: Final = 3_600


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs: the whole answer")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long to wait for an answer (%(default)s)",
    )


def add_kafka(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that ask any Kafka broker."""
    parser.add_argument(
        "--bootstrap-server",
        default=BOOTSTRAP_SERVER,
        metavar="HOST:PORT[,...]",
        help="a broker, Kohort's or Kafka's (%(default)s)",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="how long to try again while no broker is there, for one that is just started (0)",
    )
    add_command_config(parser)
    add_common(parser)


def add_command_config(parser: argparse.ArgumentParser) -> None:
    """How to get into a cluster with TLS or SASL."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties for a cluster with TLS or SASL, as Kafka's own tools take them",
    )


def seconds(text: str) -> float:
    """A number of seconds, above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value <= TIMEOUT_S_MAX:
        raise argparse.ArgumentTypeError(f"a number above 0, up to {TIMEOUT_S_MAX}")
    return value


@contextmanager
def cluster_of(options: argparse.Namespace) -> Iterator[Cluster]:
    """The cluster to be asked; what it raises becomes an error of the command.

    Raises:
        UsageError, UnavailableError, RefusedCommandError
    """
    try:
        servers = parse_bootstrap(options.bootstrap_server, "--bootstrap-server")
    except ConfigError as error:
        raise UsageError(str(error)) from error
    security = security_of(options)
    try:
        with _connected(servers, options, security) as cluster:
            yield cluster
    except DisconnectedError as error:
        raise UnavailableError(
            f"{in_file_words(str(error))}\nIs the broker running? --bootstrap-server tells where it"
            " is, and --command-config how to get in."
        ) from error
    except ConsumerError as error:
        raise UnavailableError(in_file_words(str(error))) from error
    except RefusedError as error:
        raise RefusedCommandError(f"{error}{_hint(error, options.command_config)}") from error


def _hint(error: RefusedError, command_config: str | None) -> str:
    """What to do about a refusal for lack of rights, or of an authorizer."""
    if error.error == ErrorCode.SECURITY_DISABLED:
        return (
            "\nWithout an authorizer every client may do everything: authorizer.class.name=kohort,"
            " with super.users, gives the broker one."
        )
    if not error_name(error.error).endswith("_AUTHORIZATION_FAILED"):
        return ""
    who = (
        "Without --command-config it asks as User:ANONYMOUS, who has"
        if command_config is None
        else f"The user of {command_config} has"
    )
    return f"\n{who} no right to that; `kohort acl add` gives one, docs/access.md says which."


def _connected(
    servers: Sequence[Address], options: argparse.Namespace, security: SecurityConfig
) -> Cluster:
    """Connect, again and again if a broker may be about to come. Raises as `Cluster` does."""
    ends_s = time.monotonic() + options.wait
    while True:
        try:
            return Cluster(servers, options.timeout, security)
        except DisconnectedError:
            if time.monotonic() + RETRY_S > ends_s:
                raise
        time.sleep(RETRY_S)


def security_of(options: argparse.Namespace) -> SecurityConfig:
    """How to get into the cluster. Raises UsageError."""
    path = options.command_config
    return SecurityConfig() if path is None else read_command_config(path)


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2))
