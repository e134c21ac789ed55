"""``kohort topics trim``: deletes the oldest records of partitions."""

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

from kohort.admin.cluster import Cluster
from kohort.admin.offsets import END, START, TopicPartition
from kohort.admin.trimming import delete_records
from kohort.cli.commands import Commands
from kohort.cli.options import (
    DURATION,
    add_kafka,
    cluster_of,
    duration_ms,
    moment_ms,
    print_result,
)
from kohort.cli.output import table
from kohort.cli.partitions import existing_offsets, partitions_named


class Cut(NamedTuple):
    """A partition and its log start offset, before and after."""

    topic: str
    partition: int
    before: int
    after: int


def add_trim(commands: Commands) -> None:
    parser = commands.add("trim", "delete the oldest records of topics", _trim)
    parser.add_argument(
        "partitions", metavar="TOPIC", nargs="+", help="all its partitions; orders:0,2 is two"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-latest", action="store_true", help="delete all records")
    where.add_argument("--to-offset", type=int, metavar="N", help="delete those before offset N")
    where.add_argument(
        "--to-datetime",
        type=moment_ms,
        metavar="TIME",
        help="delete those before the first one of this time, as 2026-11-23T06:00:00, or later",
    )
    where.add_argument(
        "--by-duration",
        type=duration_ms,
        metavar=DURATION,
        help="delete those before the first one that is younger than this: 12h, 7d",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be deleted, but change nothing"
    )
    add_kafka(parser)


def _trim(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        cuts = _cuts(cluster, options, partitions_named(cluster, options.partitions))
        if not options.dry_run:
            starts = delete_records(
                cluster,
                {(cut.topic, cut.partition): cut.after for cut in cuts if cut.after > cut.before},
            )
            cuts = [
                cut._replace(after=starts.get((cut.topic, cut.partition), cut.before))
                for cut in cuts
            ]
    data = {"dry_run": options.dry_run, "partitions": [cut._asdict() for cut in cuts]}
    lines = [*table(("TOPIC", "PARTITION", "START", "NEW START"), cuts)]
    if options.dry_run:
        lines += ["", "Nothing was deleted: this was a dry run."]
    print_result(options, data, lines)


def _cuts(
    cluster: Cluster, options: argparse.Namespace, partitions: Sequence[TopicPartition]
) -> list[Cut]:
    """Raises NotFoundError, RefusedError, DisconnectedError."""
    starts = existing_offsets(cluster, dict.fromkeys(partitions, START))
    ends = existing_offsets(cluster, dict.fromkeys(partitions, END))
    time_ms = options.to_datetime
    if options.by_duration is not None:
        time_ms = int(time.time() * 1000) - options.by_duration
    if time_ms is not None:
        wanted = existing_offsets(cluster, dict.fromkeys(partitions, time_ms))
        # -1 if all records are older.
        wanted = {
            partition: offset if offset >= 0 else ends[partition]
            for partition, offset in wanted.items()
        }
    elif options.to_offset is not None:
        wanted = dict.fromkeys(partitions, options.to_offset)
    else:
        wanted = ends
    return [
        Cut(
            *partition,
            starts[partition],
            min(max(wanted[partition], starts[partition]), ends[partition]),
        )
        for partition in partitions
    ]
