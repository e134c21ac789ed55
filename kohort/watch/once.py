"""``kohort watch --once``: the history of groups, as far as __consumer_offsets reaches back."""

from collections.abc import Container
from typing import NamedTuple

from kohort.admin.cluster import Cluster
from kohort.watch.log_files import LogFiles
from kohort.watch.reader import Json, OffsetsReader, Report


class History(NamedTuple):
    """What the topic tells."""

    records: list[Json]
    """Records of all groups, group by group, the oldest of each first."""
    since_ms: dict[str, int]
    """How far back the history of each group reaches."""
    unread_count: int
    """Records that could not be decoded."""


def read_history(
    cluster: Cluster,
    group: str | None,
    report: Report,
    left_out: Container[str] = (),
    logs: LogFiles | None = None,
) -> History:
    """Read the history of a group, or of all but some. Raises as `OffsetsReader` does."""
    reader = OffsetsReader(cluster, group, left_out)
    ends = reader.ends()
    if logs is not None:
        logs.read_past(reader.watcher.logs, to_end=True)
    records = [*reader.read(ends, report), *reader.watcher.flush()]
    return History(records, reader.watcher.since_ms, reader.watcher.unread_count)
