"""``kohort groups reset-offsets``: where a group reads on, shown first and set with --execute.

The ways to say it are those of ``kafka-consumer-groups.sh --reset-offsets``. Offsets beyond the
ends of a partition are taken to the nearer end.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kohort.admin.cluster import Cluster
from kohort.admin.group_changes import set_offsets
from kohort.admin.groups import committed_offsets
from kohort.admin.offsets import END, START, TopicPartition, told_offsets
from kohort.cli.errors import NotFoundError, UsageError
from kohort.cli.not_found import partitions_of
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table
from kohort.cli.times import duration_ms, moment_ms
from kohort.formats.text import shown


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's change."""

    partition: TopicPartition
    before: int | None
    after: int
    end: int

    @property
    def lag(self) -> int:
        """Records to be read after the change."""
        return self.end - self.after


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:0,2,5]",
        help="all partitions of a topic, or these; may be given several times",
    )
    which.add_argument(
        "--all-topics", action="store_true", help="all partitions that the group has offsets of"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first record there is")
    where.add_argument("--to-latest", action="store_true", help="behind the last record")
    where.add_argument("--to-current", action="store_true", help="where it is; useful with --json")
    where.add_argument("--to-offset", type=int, metavar="N")
    where.add_argument("--shift-by", type=int, metavar="N", help="on by N records, -N back")
    where.add_argument(
        "--to-datetime",
        type=moment_ms,
        metavar="TIME",
        help="the first record not older than 2026-11-23T06:00:00, which is local time unless it "
        "says otherwise (...+01:00, ...Z)",
    )
    where.add_argument(
        "--by-duration",
        type=duration_ms,
        metavar="PnDTnHnMnS",
        help="the first record not older than so long ago: PT1H30M, P7D",
    )
    parser.add_argument(
        "--execute", action="store_true", help="set them; without it they are only shown"
    )
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        known = committed_offsets(cluster, options.group)
        partitions = _partitions(cluster, options, known)
        moves = _moves(cluster, options, partitions, known)
        if options.execute:
            set_offsets(cluster, options.group, {one.partition: one.after for one in moves})
    if options.json:
        print_json(
            {
                "group": options.group,
                "executed": options.execute,
                "partitions": [
                    {
                        "topic": one.partition[0],
                        "partition": one.partition[1],
                        "before": one.before,
                        "after": one.after,
                        "lag": one.lag,
                    }
                    for one in moves
                ],
            }
        )
        return
    for line in lines(options.group, moves, is_executed=options.execute):
        print(line)


def lines(group: str, moves: Iterable[Move], *, is_executed: bool) -> Iterator[str]:
    """What is printed."""
    rows = [(*one.partition, one.before, one.after, one.lag) for one in moves]
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
                f"the group {options.group!r} has no offsets; --topic says which it is to have"
            )
        return sorted(known)
    found: list[TopicPartition] = []
    for text in options.topic:
        name, colon, indexes = text.partition(":")
        wanted = _indexes(text, indexes) if colon else None
        found += [(name, index) for index in partitions_of(cluster, name, wanted)]
    return sorted(set(found))


def _indexes(text: str, indexes: str) -> list[int]:
    parts = indexes.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--topic {text}: TOPIC or TOPIC:0,2,5 is wanted")
    return [int(part) for part in parts]


def _moves(
    cluster: Cluster,
    options: argparse.Namespace,
    partitions: list[TopicPartition],
    known: Mapping[TopicPartition, int],
) -> list[Move]:
    starts = _offsets(cluster, dict.fromkeys(partitions, START))
    ends = _offsets(cluster, dict.fromkeys(partitions, END))
    time_ms = options.to_datetime
    if options.by_duration is not None:
        time_ms = int(time.time() * 1000) - options.by_duration
    times: dict[TopicPartition, int] = {}
    if time_ms is not None:
        times = _offsets(cluster, dict.fromkeys(partitions, time_ms))
    moves = []
    for one in partitions:
        before = known.get(one)
        if options.to_earliest:
            wanted = starts[one]
        elif options.to_latest:
            wanted = ends[one]
        elif options.to_offset is not None:
            wanted = options.to_offset
        elif time_ms is not None:
            # Nothing is that late: behind the last record.
            wanted = times[one] if times[one] >= 0 else ends[one]
        elif before is None:
            raise UsageError(
                f"the group {options.group!r} has no offset of {one[0]}-{one[1]} to go from; "
                "--to-earliest, --to-latest, --to-offset and --to-datetime need none"
            )
        else:
            wanted = before + (options.shift_by or 0)
        after = min(max(wanted, starts[one]), ends[one])
        moves.append(Move(one, before, after, ends[one]))
    return moves


def _offsets(cluster: Cluster, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    found = told_offsets(cluster, times)
    if missing := sorted(set(times) - found.keys()):
        topic, index = missing[0]
        raise NotFoundError(f"there is no {topic}-{index}, of which the group has an offset")
    return found
