"""``kohort topics trim``: deletes the oldest records of partitions."""

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from kohort.admin.cluster import Cluster
from kohort.admin.offsets import TopicPartition
from kohort.admin.trimming import delete_records
from kohort.cli.commands import Commands
from kohort.cli.options import add_kafka, cluster_of, print_result
from kohort.cli.output import table
from kohort.cli.partitions import add_times, bounds_of, partitions_named


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
    add_times(
        where,
        to_datetime="delete those before the first one of this time, as 2026-11-23T06:00:00, or"
        " later",
        by_duration="delete those before the first one that is younger than this: 12h, 7d",
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
    bounds = bounds_of(cluster, options, partitions)
    wanted = bounds.timed or bounds.ends
    if options.to_offset is not None:
        wanted = dict.fromkeys(partitions, options.to_offset)
    return [
        Cut(*partition, bounds.starts[partition], bounds.within(partition, wanted[partition]))
        for partition in partitions
    ]
