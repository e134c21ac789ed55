"""Finds the partitions that arguments name."""

from collections.abc import Iterable, Mapping
from typing import Final

from kohort.admin.cluster import Cluster
from kohort.admin.offsets import TopicPartition, checked_offsets
from kohort.cli.errors import NotFoundError, UsageError, partitions_of

PARTITIONS: Final = "TOPIC[:0,2,5]"
"""Name of arguments for `split_partitions`."""


def split_partitions(text: str) -> tuple[str, list[int] | None]:
    """Split ``orders:0,2`` into the topic and the indexes, None for all. Raises UsageError."""
    name, colon, indexes = text.partition(":")
    if not colon:
        return name, None
    parts = indexes.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"{text}: expected TOPIC or TOPIC:0,2,5")
    return name, [int(part) for part in parts]


def partitions_named(cluster: Cluster, texts: Iterable[str]) -> list[TopicPartition]:
    """The partitions that texts like ``orders:0,2`` name, sorted.

    Raises:
        UsageError
        NotFoundError
        DisconnectedError
    """
    partitions: set[TopicPartition] = set()
    for text in texts:
        name, wanted = split_partitions(text)
        partitions |= {(name, index) for index in partitions_of(cluster, name, wanted)}
    return sorted(partitions)


def existing_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets at these times, as `checked_offsets`.

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
