"""Options that several commands on topics have."""

import argparse
from collections.abc import Iterable
from typing import Final

from kohort.admin.cluster import RefusedError
from kohort.cli.errors import NotFoundError, RefusedCommandError, UsageError
from kohort.protocol.errors import ErrorCode

_MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def add_names(parser: argparse.ArgumentParser) -> None:
    """One topic or more."""
    parser.add_argument("topics", metavar="TOPIC", nargs="+")


def add_config(parser: argparse.ArgumentParser) -> None:
    """`--config NAME=VALUE`, as often as wanted."""
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a topic config under Kafka's name, retention.ms=3600000; may be given several times",
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`: the broker checks everything and changes nothing."""
    parser.add_argument(
        "--dry-run", action="store_true", help="have the broker check it, and change nothing"
    )


def configs_of(texts: Iterable[str]) -> dict[str, str]:
    """Values by name. Raises UsageError."""
    configs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--config {text}: NAME=VALUE is wanted, as in retention.ms=3600000")
        configs[name] = value
    return configs


def refused(error: RefusedError) -> NotFoundError | RefusedCommandError:
    """The error of the command for what a broker has refused about a topic."""
    if error.error in _MISSING:
        return NotFoundError(f"{error}; `kohort topics list` shows which there are")
    return RefusedCommandError(str(error))
