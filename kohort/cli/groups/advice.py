"""Options of ``kohort groups advise`` and ``report``, which replay a group's rebalance history."""

import argparse
from pathlib import Path
from typing import Final

from kohort.cli.commands import Commands
from kohort.cli.groups.from_files import add_from
from kohort.cli.groups.history import COUNT_MAX, add_history

_ADVISE: Final = (
    "Replays a group's recorded rebalances under other settings, by the coordinator's own rules, "
    "and prints the settings that would have cost less, and how to set the best of them in Java, "
    "librdkafka, aiokafka and Kohort's own client. The history comes from a Kohort broker's HTTP "
    "port, or from files: records of __rebalance_history or responses of "
    "/groups/GROUP/rebalances, one on each line, or the log of a stock Kafka broker. Takes "
    "seconds, and needs neither Spark nor Java; docs/advisor.md explains the method."
)
_REPORT: Final = (
    "Writes a page about one group's history: the causes that cost most, the members that others "
    "waited for, what to change and the lines to paste for it, then every rebalance in words, the "
    "owners of partitions, and plots. One HTML file, which needs no network and no script. The "
    "history comes from a Kohort broker's HTTP port, or from files, as with `kohort groups "
    "advise`. Takes seconds, and needs neither Spark nor Java; docs/report.md explains the page."
)


def add_advise(commands: Commands) -> None:
    summary = "settings that would have avoided rebalances of a group"
    _add_arguments(commands.add("advise", summary, _advise, description=_ADVISE))


def add_report(commands: Commands) -> None:
    summary = "why it rebalanced and what to change, as a page"
    parser = commands.add("report", summary, _report, description=_REPORT)
    _add_arguments(parser)
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="file to write (GROUP.html in this directory)"
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    add_history(
        parser, last=COUNT_MAX, last_help="number of records, the newest ones (%(default)s)"
    )
    add_from(parser)
    parser.add_argument(
        "--known",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the group that the history does not contain: session_timeout_ms, "
        "heartbeat_interval_ms, rebalance_timeout_ms, initial_rebalance_delay_ms, "
        "assignment_interval_ms; repeatable",
    )


def _advise(options: argparse.Namespace) -> None:
    from kohort.cli.groups.advising import advise  # noqa: PLC0415 - imports the whole advisor.

    advise(options)


def _report(options: argparse.Namespace) -> None:
    from kohort.cli.groups.reporting import report  # noqa: PLC0415 - imports the whole report.

    report(options)
