"""Small files put together, old ones removed, old events forgotten: `kohort pipeline tidy`.

For a lake that jobs write into day by day; once a night is enough, also while they run. Tables of
findings in Delta need nothing of it but the removal of files: their files are put together as they
are written.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import Final

from kohort.insight.console import announce
from kohort.insight.counting import counted
from kohort.pipeline import options as common
from kohort.pipeline.delta.lake import DeltaLake
from kohort.pipeline.java import QUICK
from kohort.pipeline.lake import Lake
from kohort.pipeline.progress import pulse
from kohort.pipeline.rebalances.findings import Findings, Thresholds
from kohort.pipeline.schemas import AVOIDED, FINDINGS, MEMBERS, REBALANCES, RUNNING

NAME: Final = "kohort-tidy"
HOURS_MIN: Final = 168
"""Delta's own, and so Iceberg's too: a reader that is a week behind finds its files."""

MOMENTS: Final = {
    MEMBERS.name: "started_at",
    REBALANCES.name: "started_at",
    AVOIDED.name: "at",
    RUNNING.name: "started_at",
}
"""When what a row tells of began, by table. Members first: none is left without its rebalance."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this job."""
    parser.add_argument(
        "--keep-days",
        type=common.positive,
        metavar="N",
        help="forget events of the history that are older, and make findings again of what is "
        "left; without it, all is kept",
    )
    parser.add_argument(
        "--keep-files-hours",
        type=common.positive,
        default=HOURS_MIN,
        metavar="N",
        help="how long files stay that no longer belong to a table (%(default)s, the least)",
    )
    common.add_lake(parser)
    common.add_spark(parser)


def run(options: argparse.Namespace) -> int:
    """Raises ReportedError."""
    spark = common.session_of(options, NAME, java_options=QUICK)
    lake = common.lake_of(options, spark)
    with pulse(spark) as progress:
        if options.keep_days is not None:
            forget(lake, options.keep_days)
        names = lake.names()
        # Delta's are put together as they are written.
        whole = {table.name for table in FINDINGS} if isinstance(lake, DeltaLake) else set()
        before = after = 0
        for number, name in enumerate(names, 1):
            progress.report(f"{name}, table {number} of {len(names)}")
            count = lake.file_count(name)
            if name not in whole and count > 1:
                lake.compact(name)
            lake.vacuum(name, max(options.keep_files_hours, HOURS_MIN))
            before, after = before + count, after + lake.file_count(name)
    tables, files = counted(len(names), "table"), counted(after, "file")
    announce(f"tidy: {tables}, {files} instead of {before:,}")
    return 0


def forget(lake: Lake, days: int) -> None:
    """Events that began longer ago than that, and what was found of them. Raises ReportedError."""
    is_history = False
    for name, moment in MOMENTS.items():
        if lake.exists(name):
            is_history = True
            lake.forget(name, moment, datetime.now(UTC) - timedelta(days=days))
    if is_history:
        Findings(lake, Thresholds()).renew(everything=True)
