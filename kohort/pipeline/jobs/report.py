"""Writes a page on why groups rebalanced and what to change: `kohort pipeline report`."""

import argparse
from pathlib import Path
from typing import Final

from kohort.formats.text import counted
from kohort.insight.output import announce, write_whole
from kohort.insight.report.page import render
from kohort.pipeline import options as common
from kohort.pipeline.errors import UnavailableError
from kohort.pipeline.faults import explained
from kohort.pipeline.java import QUICK
from kohort.pipeline.progress import pulse
from kohort.pipeline.rebalances.pages import collect

NAME: Final = "kohort-report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_groups(parser)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("rebalances.html"),
        metavar="FILE",
        help="the page (%(default)s)",
    )
    common.add_lake(parser)
    common.add_spark(parser)


def run(options: argparse.Namespace) -> int:
    output: Path = options.output
    if not output.absolute().parent.is_dir():
        raise UnavailableError(f"--output {output}: no such directory")
    spark = common.session_of(options, NAME, java_options=QUICK)
    lake = common.lake_of(options, spark)
    with explained(f"reading the lake {lake.root}"), pulse(spark) as now:
        contents = collect(lake, options.group, now.report)
    text = render(contents, f"the lake {lake.root}")
    try:
        write_whole(output, text)
    except OSError as error:
        raise UnavailableError(f"--output {output}: {error.strerror}") from error
    announce(f"{output}: {counted(len(contents.groups), 'group')}, {len(text) / 1024:,.0f} KiB")
    return 0
