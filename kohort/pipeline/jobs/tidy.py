"""Compacts small files, deletes unused files and old events: `kohort pipeline tidy`.

Intended for lakes with continuous jobs, once a night, also while they run. For Delta's tables of
findings it only deletes unused files, because writes compact these tables.
"""

import argparse
from datetime import UTC, datetime, timedelta
from typing import Final

from kohort.formats.text import counted
from kohort.insight.output import announce
from kohort.insight.tables.findings import FINDINGS
from kohort.insight.tables.history import AVOIDED, MEMBERS, REBALANCES, RUNNING
from kohort.pipeline import options as common
from kohort.pipeline.delta.lake import DeltaLake
from kohort.pipeline.java import QUICK
from kohort.pipeline.lake import Lake
from kohort.pipeline.progress import pulse
from kohort.pipeline.rebalances.findings import Findings, Thresholds

NAME: Final = "kohort-tidy"
HOURS_MIN: Final = 168
"""Minimum age of unused files to delete. It is Delta's own limit, also used for Iceberg: readers up
to a week behind find their files."""

MOMENTS: Final = {
    MEMBERS.name: "started_at",
    REBALANCES.name: "started_at",
    AVOIDED.name: "at",
    RUNNING.name: "started_at",
}
"""The time column of each table, in the order of deletion: members come first, so that none remains
without its rebalance."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-days",
        type=common.positive,
        metavar="N",
        help="delete older events of the history, and recompute the findings (default: keep all)",
    )
    parser.add_argument(
        "--keep-files-hours",
        type=common.positive,
        default=HOURS_MIN,
        metavar="N",
        help="keep files that no longer belong to a table for this time (%(default)s, the minimum)",
    )
    common.add_lake(parser)
    common.add_spark(parser)


def run(options: argparse.Namespace) -> int:
    spark = common.session_of(options, NAME, java_options=QUICK)
    lake = common.lake_of(options, spark)
    with pulse(spark) as progress:
        if options.keep_days is not None:
            forget(lake, options.keep_days)
        names = lake.names()
        # Delta's tables of findings are compacted by writes.
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
    """Delete events that began over `days` ago, and recompute findings. Raises ReportedError."""
    is_history = False
    for name, moment in MOMENTS.items():
        if lake.exists(name):
            is_history = True
            lake.forget(name, moment, datetime.now(UTC) - timedelta(days=days))
    if is_history:
        Findings(lake, Thresholds()).renew(everything=True)
