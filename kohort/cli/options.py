"""Options that several commands share: the cluster, its security, output, times and durations."""

import argparse
import dataclasses
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from kohort.admin.cluster import RETRY_S, Cluster, RefusedError, error_name
from kohort.admin.command_config import SettingError, in_file_words, read_command_config
from kohort.cli.errors import (
    CommandError,
    ExistsError,
    NotFoundError,
    RefusedCommandError,
    StartingError,
    UnavailableError,
    UsageError,
)
from kohort.cli.output import table
from kohort.client.core.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    ConsumerError,
    TlsError,
    TokenError,
    UnknownTopicError,
)
from kohort.client.net.address import Address, parse_bootstrap
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.security import SecurityConfig
from kohort.protocol.errors import ErrorCode

BOOTSTRAP_SERVER: Final = "localhost:9092"
TIMEOUT_S: Final = 10.0
TIMEOUT_S_MAX: Final = 3_600

_MISSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)

DURATION: Final = "DURATION"
"""Placeholder in help texts for a value that `duration_ms` or `seconds` parses."""

_DURATIONS: Final = (
    re.compile(
        r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
    ),
    re.compile(r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"),
    re.compile(r"(?P<s>\d*\.?\d+)"),
)
_UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print the complete result as JSON, for scripts"
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT_S,
        metavar=DURATION,
        help="timeout of connecting and of each request (%(default)s)",
    )


def bootstrap_server() -> str | None:
    """Return KOHORT_BOOTSTRAP_SERVER, the default of --bootstrap-server; None if it is unset."""
    return os.environ.get("KOHORT_BOOTSTRAP_SERVER") or None


def add_kafka(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=bootstrap_server() or BOOTSTRAP_SERVER,
        metavar="HOST:PORT[,...]",
        help="a broker of the cluster, Kohort's or Kafka's (%(default)s; KOHORT_BOOTSTRAP_SERVER)",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        default=0.0,
        metavar=DURATION,
        help="how long to retry the connection, for a broker that is just starting (0)",
    )
    add_command_config(parser)
    add_common(parser)


def add_command_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties file with TLS and SASL settings, as for Kafka's own tools",
    )


def seconds(text: str) -> float:
    """Parse a duration above 0, to seconds. Raises argparse.ArgumentTypeError."""
    value = duration_ms(text) / 1000
    if not 0 < value <= TIMEOUT_S_MAX:
        raise argparse.ArgumentTypeError(f"seconds above 0, up to {TIMEOUT_S_MAX}, or as in 10m")
    return value


@contextmanager
def cluster_of(options: argparse.Namespace) -> Iterator[Cluster]:
    """Connect to the cluster that the options name; its errors become CommandError."""
    try:
        servers = parse_bootstrap(options.bootstrap_server, "--bootstrap-server")
    except ConfigError as error:
        raise UsageError(str(error)) from error
    security = security_of(options)
    try:
        with _connected(servers, options, security) as cluster:
            yield cluster
    except DisconnectedError as error:
        # Imports urllib, which other commands do not need.
        from kohort.cli.admin_http import starting_text  # noqa: PLC0415

        for host in {host for host, _ in servers}:
            if (text := starting_text(host)) is not None:
                raise StartingError(text) from error
        text = in_file_words(str(error))
        if "cannot be reached" in text:
            text += (
                "\nIs the broker running? --bootstrap-server sets its address, and --command-config"
                " the security settings."
            )
        raise UnavailableError(text) from error
    except ConsumerError as error:
        raise client_error(error) from error
    except RefusedError as error:
        raise refusal(error, _hint(error, options.command_config)) from error


def client_error(error: ConsumerError) -> CommandError:
    """Return the CommandError that reports an error of the consumer or the admin client."""
    if isinstance(error, UnknownTopicError):
        return NotFoundError(str(error))
    is_refused = isinstance(error, AuthenticationError | AuthorizationError) and not isinstance(
        error, TlsError | TokenError
    )
    return (RefusedCommandError if is_refused else UnavailableError)(in_file_words(str(error)))


def refusal(error: RefusedError, hint: str = "") -> CommandError:
    """Return the CommandError for a rejected request; its class depends on the error code."""
    kind: type[CommandError] = RefusedCommandError
    if error.error in _MISSING:
        kind = NotFoundError
    elif error.error == ErrorCode.TOPIC_ALREADY_EXISTS:
        kind = ExistsError
    return kind(f"{error}{hint}")


def _hint(error: RefusedError, command_config: str | None) -> str:
    """Advice about a missing permission, or a missing authorizer."""
    if error.error == ErrorCode.SECURITY_DISABLED:
        return (
            "\nThe broker has no authorizer, so every client may do everything. To get one, set"
            " authorizer.class.name=kohort and super.users."
        )
    if not error_name(error.error).endswith("_AUTHORIZATION_FAILED"):
        return ""
    who = (
        "Without --command-config, the user is User:ANONYMOUS, which is"
        if command_config is None
        else f"The user of {command_config} is"
    )
    return (
        f"\n{who} not authorized for that; `kohort acl add` adds a rule, and docs/access.md lists"
        " the operations."
    )


def _connected(
    servers: Sequence[Address], options: argparse.Namespace, security: SecurityConfig
) -> Cluster:
    """Connect; retry until the duration of --wait has passed. Raises what `Cluster` raises."""
    ends_s = time.monotonic() + options.wait
    while True:
        try:
            return Cluster(servers, options.timeout, security)
        except DisconnectedError:
            if time.monotonic() + RETRY_S > ends_s:
                raise
        time.sleep(RETRY_S)


def security_of(options: argparse.Namespace) -> SecurityConfig:
    path = options.command_config
    try:
        return SecurityConfig() if path is None else read_command_config(path)
    except SettingError as error:
        raise UsageError(str(error)) from error


def consumer_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return a `Consumer`'s settings for brokers and security. Raises UsageError."""
    security = security_of(options)
    return {"bootstrap_servers": options.bootstrap_server} | {
        field.name: getattr(security, field.name)
        for field in dataclasses.fields(security)
        if field.init
    }


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2))


def print_result(options: argparse.Namespace, data: object, lines: Iterable[str]) -> None:
    """Print `data` with --json, otherwise the lines."""
    if options.json:
        print_json(data)
        return
    for line in lines:
        print(line)


def print_rows(
    options: argparse.Namespace,
    name: str,
    titles: Mapping[str, str],
    rows: Sequence[Mapping[str, Any]],
    nothing: str | None = None,
) -> None:
    """With --json, print {`name`: `rows`} with all fields; otherwise print a table.

    Args:
        titles: the titles of the table's columns, by field.
        nothing: text that is printed instead of an empty table.
    """
    cells = [[row[field] for field in titles] for row in rows]
    is_table = rows or nothing is None
    lines = table(list(titles.values()), cells) if is_table else [nothing or ""]
    print_result(options, {name: rows}, lines)


def assignment(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE. Raises argparse.ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE")
    return name, value


def moment_ms(text: str) -> int:
    """Parse an ISO 8601 time (local if without offset) to ms. Raises argparse.ArgumentTypeError."""
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"invalid time {text!r}: expected for example 2026-11-23T06:00:00"
        ) from None


def duration_ms(text: str) -> int:
    """Parse a duration to ms: 1h30m, ISO 8601's PT1H30M, or a number of seconds.

    Raises argparse.ArgumentTypeError.
    """
    matches = (pattern.fullmatch(text) for pattern in _DURATIONS)
    match = next((match for match in matches if match is not None and any(match.groups())), None)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"invalid duration {text!r}: expected for example 10m, 1h30m, 7d, PT1H30M or seconds"
        )
    parts = match.groupdict(default="0")
    return int(sum(float(parts.get(unit, 0)) * factor for unit, factor in _UNIT_MS.items()))
