"""``kohort pipeline convert-log``: converts a broker's log to a history, without Spark."""

import argparse
import sys
from pathlib import Path

from kohort.formats.text import counted
from kohort.insight.broker_log.convert import convert_files
from kohort.insight.errors import UsageError
from kohort.insight.output import add_timezone, announce


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "logs",
        nargs="+",
        type=Path,
        metavar="LOG",
        help="logs of one broker, oldest first; .gz is unpacked",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="file to write (standard output)"
    )
    add_timezone(parser)


def run(options: argparse.Namespace) -> int:
    """Write JSON lines, and a summary to standard error. Raises ReportedError."""
    if options.output is None:
        converter = convert_files(options.logs, sys.stdout, options.timezone)
    else:
        try:
            with options.output.open("w", encoding="utf-8") as output:
                converter = convert_files(options.logs, output, options.timezone)
        except OSError as error:
            raise UsageError(f"{options.output}: {error.strerror}") from error
    announce(
        f"{counted(converter.line_count, 'line')}, {converter.fact_count:,} of them about "
        f"{counted(converter.group_count, 'group')}: {counted(converter.record_count, 'record')}"
    )
    warning = converter.warning()
    if warning is not None:
        announce(warning)
    elif not converter.record_count:
        announce("no records: is this the log of a broker that coordinates groups, at level INFO?")
    return 0
