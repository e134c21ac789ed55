"""``kohort groups reset-offsets``: shows a group's new offsets, and commits them with --execute.

Takes the options of ``kafka-consumer-groups.sh --reset-offsets``. The offsets of a share group are
the start offsets of its share-partitions. Offsets outside a partition's
range are moved to its nearer end.
"""

import argparse
from collections.abc import Mapping
from typing import NamedTuple

from kohort.admin.cluster import Cluster
from kohort.admin.group_changes import set_offsets, set_start_offsets
from kohort.admin.groups import committed_offsets, describe_group, share_offsets
from kohort.admin.offsets import TopicPartition
from kohort.cli.commands import Commands
from kohort.cli.errors import NotFoundError, UsageError
from kohort.cli.options import add_kafka, cluster_of, print_result
from kohort.cli.output import table
from kohort.cli.partitions import PARTITIONS, add_times, bounds_of, partitions_named
from kohort.formats.text import shown


class Move(NamedTuple):
    """A partition's offset before and after the reset; `before` is None if none is committed."""

    topic: str
    partition: int
    before: int | None
    after: int
    lag: int
    """Offsets left to read after the change."""


def add_reset_offsets(commands: Commands) -> None:
    parser = commands.add("reset-offsets", "change the offsets at which a group continues", _reset)
    parser.add_argument("group", metavar="GROUP")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topic",
        action="append",
        metavar=PARTITIONS,
        help="all partitions of a topic, or these; repeatable",
    )
    which.add_argument(
        "--all-topics", action="store_true", help="all partitions in which the group has offsets"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="first record")
    where.add_argument("--to-latest", action="store_true", help="after the last record")
    where.add_argument(
        "--to-current", action="store_true", help="keep the offsets; useful with --json"
    )
    where.add_argument("--to-offset", type=int, metavar="N")
    where.add_argument("--shift-by", type=int, metavar="N", help="N offsets forward, -N back")
    add_times(
        where,
        to_datetime="first record not older than this time, as 2026-11-23T06:00:00; local time"
        " unless it has an offset (...+01:00, ...Z)",
        by_duration="first record not older than this duration before now: 1h30m, 7d",
    )
    parser.add_argument(
        "--execute",
        action="store_true",
        help="set the new offsets; without it they are only shown",
    )
    add_kafka(parser)


def _reset(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        of_shares = share_offsets(cluster, options.group)
        known = committed_offsets(cluster, options.group) if of_shares is None else of_shares
        partitions = _partitions(cluster, options, known)
        moves = _moves(cluster, options, partitions, known)
        is_new = False
        if options.execute:
            wanted = {(move.topic, move.partition): move.after for move in moves}
            change = set_offsets if of_shares is None else set_start_offsets
            change(cluster, options.group, wanted)
        else:
            is_new = not known and describe_group(cluster, options.group) is None
    data = {
        "group": options.group,
        "executed": options.execute,
        "partitions": [move._asdict() for move in moves],
    }
    is_set = f"{shown(options.group)}: set."
    what = is_set if options.execute else "Nothing was changed: --execute sets these offsets."
    if is_new:
        what += f" There is no group {options.group!r}; --execute creates it."
    titles = ("TOPIC", "PARTITION", "BEFORE", "AFTER", "LAG")
    print_result(options, data, [*table(titles, moves), "", what])


def _partitions(
    cluster: Cluster, options: argparse.Namespace, known: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    if options.all_topics:
        if not known:
            raise NotFoundError(
                f"the group {options.group!r} has no offsets; give its topics with --topic"
            )
        return sorted(known)
    return partitions_named(cluster, options.topic)


def _moves(
    cluster: Cluster,
    options: argparse.Namespace,
    partitions: list[TopicPartition],
    known: Mapping[TopicPartition, int],
) -> list[Move]:
    bounds = bounds_of(cluster, options, partitions)
    moves = []
    for partition in partitions:
        before = known.get(partition)
        if options.to_earliest:
            wanted = bounds.starts[partition]
        elif options.to_latest:
            wanted = bounds.ends[partition]
        elif options.to_offset is not None:
            wanted = options.to_offset
        elif bounds.timed is not None:
            wanted = bounds.timed[partition]
        elif before is None:
            topic, index = partition
            raise UsageError(
                f"the group {options.group!r} has no committed offset in {topic}-{index};"
                " --to-earliest, --to-latest, --to-offset and --to-datetime do not need one"
            )
        else:
            wanted = before + (options.shift_by or 0)
        after = bounds.within(partition, wanted)
        moves.append(Move(*partition, before, after, bounds.ends[partition] - after))
    return moves
