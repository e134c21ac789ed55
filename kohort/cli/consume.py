"""``kohort consume``: the records of a topic, printed.

By itself it reads partitions without a group, from where it is told and, with ``--exit``, up to
where they ended when it began. With ``--group`` it is a member like any other, commits what it has
printed, and shares partitions with the others.
"""

import argparse
from typing import Final

from kohort.cli.broker_commands import run
from kohort.cli.options import add_kafka
from kohort.cli.record_format import HELP
from kohort.cli.times import duration_ms, moment_ms

ISOLATION: Final = ("read_uncommitted", "read_committed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the value of each record on a line of its own, beginning with those that come from "
        "now on. --from-beginning prints those that are there, --exit stops behind them."
    )
    parser.add_argument("topic", metavar="TOPIC")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="from the first record on")
    start.add_argument(
        "--offset", type=int, metavar="N", help="from this offset on; -N: the last N of a partition"
    )
    start.add_argument(
        "--from-time",
        type=moment_ms,
        metavar="TIME",
        help="from the first record on that is not older than 2026-11-23T06:00:00 (local time "
        "unless it says otherwise)",
    )
    start.add_argument(
        "--last", type=duration_ms, metavar="PnDTnHnMnS", help="of the last PT10M, P1D"
    )
    start.add_argument(
        "--group",
        metavar="GROUP",
        help="as a member of this group, from what it has committed, committing what was printed",
    )
    parser.add_argument(
        "--partition",
        type=int,
        action="append",
        metavar="N",
        help="only this one; may be given several times",
    )
    parser.add_argument("--exit", "-e", action="store_true", help="stop at the present end")
    parser.add_argument(
        "--max-messages", "-c", type=int, metavar="N", help="stop after so many records"
    )
    parser.add_argument("--format", "-f", metavar="TEXT", help=HELP)
    parser.add_argument(
        "--isolation-level",
        choices=ISOLATION,
        default=ISOLATION[0],
        help="read_committed leaves out what was aborted or is open (%(default)s)",
    )
    add_kafka(parser)
    parser.set_defaults(run=run, ask=ask)
    parser.epilog = (
        "Exit codes: 0; 1 there is no such topic; 2 usage; 3 no broker answers, or it refuses."
    )


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    from kohort.cli.consuming import consume  # noqa: PLC0415 - asyncio, when it is needed.

    consume(options)
