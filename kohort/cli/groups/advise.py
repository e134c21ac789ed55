"""``kohort groups advise``: which settings would have spared a group its rebalances."""

import argparse
from datetime import UTC
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kohort.cli.groups.options import COUNT_MAX, add_http

DESCRIPTION: Final = (
    "Plays a group's recorded life again under other settings, by the coordinator's own rules, and "
    "says which are worth a thought, and what to set for the one that gains most, in the words of "
    "Java, librdkafka, aiokafka and Kohort's own client. The history comes from a Kohort broker's "
    "HTTP port, or from files: records of __rebalance_history or answers of "
    "/groups/GROUP/rebalances, one on each line, or the log of a stock Kafka broker. Takes "
    "seconds, and needs neither Spark nor Java; docs/advisor.md says what it rests on."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_history(parser)
    parser.set_defaults(ask=ask)


def add_history(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that work with a group's history, wherever that is stored."""
    parser.add_argument("group", metavar="GROUP")
    add_http(parser, last=COUNT_MAX, last_help="of so many records, the newest (%(default)s)")
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help="a history as lines of JSON, or the log of a stock Kafka broker, instead of a "
        "broker's answer; .gz is unpacked, - is standard input; repeatable, oldest first",
    )
    parser.add_argument(
        "--timezone",
        type=zone,
        default=UTC,
        metavar="NAME",
        help="of the clock of the broker whose log it is, where the log does not say (UTC)",
    )
    parser.add_argument(
        "--known",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what the group was run under, where the history does not say: session_timeout_ms, "
        "heartbeat_interval_ms, rebalance_timeout_ms, initial_rebalance_delay_ms; repeatable",
    )


def zone(name: str) -> ZoneInfo:
    """A time zone, by its name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(f"no time zone is called {name!r}") from error


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    from kohort.cli.groups.advising import ask as advise  # noqa: PLC0415 - only here is it needed.

    advise(options)
