"""Finds the partitions that command-line arguments name, and looks up their offsets."""

import argparse
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kohort.admin.cluster import Cluster, check
from kohort.admin.offsets import END, START, TopicPartition, checked_offsets
from kohort.cli.errors import NotFoundError, UsageError, no_topic
from kohort.cli.options import DURATION, duration_ms, moment_ms
from kohort.protocol.errors import ErrorCode

PARTITIONS: Final = "TOPIC[:0,2,5]"
"""The metavar of arguments that `split_partitions` parses."""


def split_partitions(text: str) -> tuple[str, list[int] | None]:
    """Split ``orders:0,2`` into the topic and the indexes, None for all. Raises UsageError."""
    name, colon, indexes = text.partition(":")
    if not colon:
        return name, None
    parts = indexes.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"{text}: expected TOPIC or TOPIC:0,2,5")
    return name, [int(part) for part in parts]


def partitions_of(cluster: Cluster, topic: str, wanted: Iterable[int] | None = None) -> list[int]:
    """Sorted indexes of a topic's partitions: the wanted ones, or all.

    Raises:
        NotFoundError: the topic, or one of the partitions, does not exist.
        RefusedError, DisconnectedError
    """
    described = cluster.metadata([topic]).topics[0]
    if described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise no_topic(topic)
    check(described.error_code, f"the topic {topic!r} cannot be read")
    existing = {partition.partition_index for partition in described.partitions}
    indexes = existing if wanted is None else set(wanted)
    if missing := sorted(indexes - existing):
        raise NotFoundError(f"{topic} has no partition {missing[0]}; it has {len(existing)}")
    return sorted(indexes)


def partitions_named(cluster: Cluster, texts: Iterable[str]) -> list[TopicPartition]:
    """The partitions that texts like ``orders:0,2`` name, sorted.

    Raises:
        UsageError
        NotFoundError
        RefusedError, DisconnectedError
    """
    partitions: set[TopicPartition] = set()
    for text in texts:
        name, wanted = split_partitions(text)
        partitions |= {(name, index) for index in partitions_of(cluster, name, wanted)}
    return sorted(partitions)


def add_times(parser: argparse._ActionsContainer, *, to_datetime: str, by_duration: str) -> None:
    """Add the options that select offsets by time; the arguments are their help texts."""
    parser.add_argument("--to-datetime", type=moment_ms, metavar="TIME", help=to_datetime)
    parser.add_argument("--by-duration", type=duration_ms, metavar=DURATION, help=by_duration)


class Bounds(NamedTuple):
    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    timed: dict[TopicPartition, int] | None
    """The offset of each partition's first record at or after the time that the options name, or
    the partition's end if all records are older; None if the options name no time."""

    def within(self, partition: TopicPartition, offset: int) -> int:
        """Return the offset, limited to the range from the first to the end offset."""
        return min(max(offset, self.starts[partition]), self.ends[partition])


def bounds_of(
    cluster: Cluster, options: argparse.Namespace, partitions: Iterable[TopicPartition]
) -> Bounds:
    """Look up the partitions' first, end and requested offsets. Raises like `existing_offsets`."""
    starts = existing_offsets(cluster, dict.fromkeys(partitions, START))
    ends = existing_offsets(cluster, dict.fromkeys(partitions, END))
    time_ms = options.to_datetime
    if options.by_duration is not None:
        time_ms = int(time.time() * 1000) - options.by_duration
    if time_ms is None:
        return Bounds(starts, ends, None)
    timed = existing_offsets(cluster, dict.fromkeys(partitions, time_ms))
    # -1 if all records are older.
    return Bounds(starts, ends, {key: ends[key] if at < 0 else at for key, at in timed.items()})


def existing_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Look up offsets by time, or by START or END; -1 if all of a partition's records are older.

    Raises:
        NotFoundError: a partition does not exist.
        RefusedError
        DisconnectedError
    """
    offsets = checked_offsets(cluster, times)
    if missing := sorted(set(times) - offsets.keys()):
        topic, index = missing[0]
        raise NotFoundError(f"no partition {topic}-{index}")
    return offsets
