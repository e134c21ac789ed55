"""``kohort watch --once``: the history of groups, as far as __consumer_offsets reaches back."""

from collections.abc import Callable
from typing import NamedTuple

from kohort.admin.cluster import Cluster
from kohort.watch.reader import Json, OffsetsReader


class History(NamedTuple):
    """What the topic tells."""

    records: list[Json]
    """By group, oldest first."""
    since_ms: dict[str, int]
    """How far back the history of each group reaches."""
    unread_count: int
    """Records that could not be decoded."""


def read_history(cluster: Cluster, group: str | None, report: Callable[[float], None]) -> History:
    """Read the history of a group, or of all; `report` gets the share that has been read.

    Raises as `OffsetsReader` does.
    """
    reader = OffsetsReader(cluster, group)
    ends = reader.ends()
    total = max(reader.left(ends), 1)
    records: list[Json] = []
    for record in reader.read(ends):
        if record is None:
            report(1 - reader.left(ends) / total)
        else:
            records.append(record)
    records += reader.watcher.flush()
    return History(records, reader.watcher.since_ms, reader.watcher.unread_count)
