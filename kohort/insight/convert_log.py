"""``kohort pipeline convert-log``: converts a broker's log to a history, without Spark."""

import argparse
import sys
from pathlib import Path
from typing import IO

from kohort.formats.text import counted
from kohort.insight.errors import UsageError
from kohort.insight.history_files import check, histories
from kohort.insight.output import add_timezone, announce


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "logs",
        nargs="+",
        metavar="LOG",
        help="logs of one broker, oldest first; .gz is unpacked",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="file to write (standard output)"
    )
    add_timezone(parser)


def run(options: argparse.Namespace) -> int:
    """Write the records, and report their number on standard error. Raises ReportedError."""
    # Check first, so that a wrong name fails before anything is written.
    check(options.logs)
    if options.output is None:
        count = _write(options, sys.stdout.buffer)
    else:
        try:
            with options.output.open("wb") as output:
                count = _write(options, output)
        except OSError as error:
            raise UsageError(f"{options.output}: {error.strerror}") from error
    announce(counted(count, "record"))
    if not count:
        announce("no records: is this the log of a broker that coordinates groups, at level INFO?")
    return 0


def _write(options: argparse.Namespace, output: IO[bytes]) -> int:
    """Write the records as JSON lines; return their number."""
    count = 0
    for _, lines in histories(options.logs, options.timezone):
        for _, line in lines:
            output.write(line + b"\n")
            count += 1
    return count
