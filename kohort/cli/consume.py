"""``kohort consume``: prints the records of topics.

Without a group it reads partitions from the given start and, with ``--exit``, up to their ends at
the start of the command. With ``--group`` it joins the group, shares its partitions and commits
what it printed.
"""

import argparse
from typing import Final

from kohort.cli import patterns
from kohort.cli.commands import exit_codes, run
from kohort.cli.options import DURATION, add_kafka, duration_ms, moment_ms
from kohort.cli.records import HELP

ISOLATION: Final = ("read_uncommitted", "read_committed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the value of each record on a line, starting with new records. --from-beginning "
        "starts with the oldest ones, --exit stops at the current end."
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help=patterns.HELP)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start at the first record")
    start.add_argument(
        "--offset",
        type=int,
        metavar="N",
        help="start at this offset; -N: the last N records of each partition",
    )
    start.add_argument(
        "--from-time",
        type=moment_ms,
        metavar="TIME",
        help="start at the first record not older than this time, as 2026-11-23T06:00:00 (local "
        "time unless it has an offset)",
    )
    start.add_argument(
        "--last",
        type=duration_ms,
        metavar=DURATION,
        help="start this duration before now: 10m, 1d",
    )
    parser.add_argument(
        "--group",
        metavar="GROUP",
        help="join this group: start at its committed offsets, or at the first record if there are "
        "none, and commit what was printed",
    )
    parser.add_argument(
        "--partition",
        type=int,
        action="append",
        metavar="N",
        help="read only this partition; repeatable",
    )
    parser.add_argument("--exit", "-e", action="store_true", help="stop at the current end")
    parser.add_argument(
        "--to-offset",
        type=int,
        metavar="N",
        help="stop before this offset, or at the current end if lower",
    )
    parser.add_argument(
        "--to-time",
        type=moment_ms,
        metavar="TIME",
        help="stop before the first record of this time or later; if none, at the current end",
    )
    parser.add_argument("--max-messages", "-c", type=int, metavar="N", help="stop after N records")
    parser.add_argument("--format", "-f", metavar="TEXT", help=HELP)
    parser.add_argument(
        "--isolation-level",
        choices=ISOLATION,
        default=ISOLATION[0],
        help="read_committed skips records of aborted and open transactions (%(default)s)",
    )
    add_kafka(parser)
    parser.set_defaults(run=run, handler=_consume)
    parser.epilog = exit_codes("no such topic")


def _consume(options: argparse.Namespace) -> None:
    from kohort.cli.consuming import consume  # noqa: PLC0415 - imports asyncio.

    consume(options)
