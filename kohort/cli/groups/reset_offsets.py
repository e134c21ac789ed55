"""``kohort groups reset-offsets``: shows a group's new offsets, and commits them with --execute.

Takes the options of ``kafka-consumer-groups.sh --reset-offsets``. Offsets outside a partition's
range are moved to its nearer end.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kohort.admin.cluster import Cluster
from kohort.admin.group_changes import set_offsets
from kohort.admin.groups import committed_offsets
from kohort.admin.offsets import END, START, TopicPartition
from kohort.cli.commands import Commands
from kohort.cli.errors import NotFoundError, UsageError
from kohort.cli.options import (
    DURATION,
    add_kafka,
    cluster_of,
    duration_ms,
    moment_ms,
    print_result,
)
from kohort.cli.output import table
from kohort.cli.partitions import PARTITIONS, existing_offsets, partitions_named
from kohort.formats.text import shown


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's change; offsets, `before` is None without a committed one."""

    partition: TopicPartition
    before: int | None
    after: int
    end: int

    @property
    def lag(self) -> int:
        """Offsets left to read after the change."""
        return self.end - self.after


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
    where.add_argument("--to-current", action="store_true", help="unchanged; useful with --json")
    where.add_argument("--to-offset", type=int, metavar="N")
    where.add_argument("--shift-by", type=int, metavar="N", help="N offsets forward, -N back")
    where.add_argument(
        "--to-datetime",
        type=moment_ms,
        metavar="TIME",
        help="first record not older than this time, as 2026-11-23T06:00:00; local time unless it "
        "has an offset (...+01:00, ...Z)",
    )
    where.add_argument(
        "--by-duration",
        type=duration_ms,
        metavar=DURATION,
        help="first record not older than this duration before now: 1h30m, 7d",
    )
    parser.add_argument(
        "--execute",
        action="store_true",
        help="commit the new offsets; without it they are only shown",
    )
    add_kafka(parser)


def _reset(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        known = committed_offsets(cluster, options.group)
        partitions = _partitions(cluster, options, known)
        moves = _moves(cluster, options, partitions, known)
        if options.execute:
            set_offsets(cluster, options.group, {move.partition: move.after for move in moves})
    data = {
        "group": options.group,
        "executed": options.execute,
        "partitions": [
            {
                "topic": move.partition[0],
                "partition": move.partition[1],
                "before": move.before,
                "after": move.after,
                "lag": move.lag,
            }
            for move in moves
        ],
    }
    print_result(options, data, _lines(options.group, moves, is_executed=options.execute))


def _lines(group: str, moves: Iterable[Move], *, is_executed: bool) -> Iterator[str]:
    rows = [(*move.partition, move.before, move.after, move.lag) for move in moves]
    yield from table(("TOPIC", "PARTITION", "BEFORE", "AFTER", "LAG"), rows)
    yield ""
    if is_executed:
        yield f"{shown(group)}: set."
    else:
        yield "Nothing was changed: --execute sets these offsets."


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
    starts = existing_offsets(cluster, dict.fromkeys(partitions, START))
    ends = existing_offsets(cluster, dict.fromkeys(partitions, END))
    time_ms = options.to_datetime
    if options.by_duration is not None:
        time_ms = int(time.time() * 1000) - options.by_duration
    times: dict[TopicPartition, int] = {}
    if time_ms is not None:
        times = existing_offsets(cluster, dict.fromkeys(partitions, time_ms))
    moves = []
    for partition in partitions:
        start, end, before = starts[partition], ends[partition], known.get(partition)
        if options.to_earliest:
            wanted = start
        elif options.to_latest:
            wanted = end
        elif options.to_offset is not None:
            wanted = options.to_offset
        elif time_ms is not None:
            # -1 if all records are older.
            wanted = times[partition] if times[partition] >= 0 else end
        elif before is None:
            topic, index = partition
            raise UsageError(
                f"the group {options.group!r} has no committed offset in {topic}-{index};"
                " --to-earliest, --to-latest, --to-offset and --to-datetime do not need one"
            )
        else:
            wanted = before + (options.shift_by or 0)
        moves.append(Move(partition, before, min(max(wanted, start), end), end))
    return moves
