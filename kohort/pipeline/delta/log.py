"""Finds the files of a table's version from its log, as specified by Delta's protocol.

Delta lists the log files of the version; they are replayed here: files that were added and not
removed. Tables whose protocol has more features are left to Spark.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq

from kohort.pipeline.delta.storage import Storage

READER_VERSION: Final = 1
WRITER_VERSION: Final = 2
"""Tables up to these protocol versions consist of data files only."""


@dataclass(frozen=True, slots=True)
class DataFile:
    action: dict[str, Any]

    @property
    def path(self) -> str:
        """The file's path below the table, or an absolute one."""
        return unquote(str(self.action["path"]))

    @property
    def stats(self) -> dict[str, Any]:
        """The file's number of rows and the bounds of its columns; empty if missing."""
        stats: dict[str, Any] = json.loads(self.action.get("stats") or "{}")
        return stats

    def removal(self, now_ms: int) -> dict[str, Any]:
        """Return the action that removes the file from the table."""
        return {
            "path": self.action["path"],
            "deletionTimestamp": now_ms,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": self.action.get("partitionValues") or {},
            "size": self.action.get("size", 0),
        }


@dataclass(frozen=True, slots=True)
class Wanted:
    groups: Collection[str]
    sequences: tuple[int, int] | None = None
    """The first and the last sequence number; None: any."""

    def may_be_in(self, stats: Mapping[str, Any]) -> bool:
        """Whether a file with these statistics may contain such rows. Truncated bounds of long
        texts are still lower and upper bounds.
        """
        least, greatest = stats.get("minValues") or {}, stats.get("maxValues") or {}
        return stats.get("numRecords") != 0 and self.may_be_between(least, greatest)

    def may_be_between(self, least: Mapping[str, Any], greatest: Mapping[str, Any]) -> bool:
        """Whether such rows may be between these minimum and maximum values."""
        if self.sequences is not None and "sequence" in least and "sequence" in greatest:
            first, last = self.sequences
            if last < least["sequence"] or first > greatest["sequence"]:
                return False
        if "group" not in least or "group" not in greatest:
            return True
        return any(least["group"] <= group <= greatest["group"] for group in self.groups)


def is_plain(snapshot: Any) -> bool:  # noqa: ANN401 - a Java object.
    """Whether the table consists of data files only, so that Python can read and write it."""
    protocol = snapshot.protocol()
    return bool(
        protocol.minReaderVersion() <= READER_VERSION
        and protocol.minWriterVersion() <= WRITER_VERSION
        and not snapshot.metadata().partitionColumns().size()
    )


def live_files(java: Any, snapshot: Any, storage: Storage) -> list[DataFile]:  # noqa: ANN401 - a Java object.
    """Return the files of a plain table's version, in the order in which they were added."""
    if snapshot.version() < 0:
        return []
    segment = snapshot.logSegment()
    lists = java.scala.jdk.javaapi.CollectionConverters
    checkpoints = [
        str(status.getPath().toString())
        for status in lists.asJava(segment.checkpointProvider().topLevelFiles())
    ]
    if any(path.endswith(".json") or ".checkpoint.parquet" not in path for path in checkpoints):
        # Multi-part checkpoints, or checkpoints with sidecar files, are read by Delta.
        actions = (json.loads(file.json()) for file in snapshot.allFiles().collect())
        return [DataFile(action["add"]) for action in actions]
    live: dict[str, dict[str, Any]] = {}
    for path in checkpoints:
        for action in _checkpoint(storage, path):
            live[action["path"]] = action
    for delta in lists.asJava(segment.deltas()):
        _replay(storage.read(str(delta.getPath().toString())), live)
    return [DataFile(action) for action in live.values()]


def _checkpoint(storage: Storage, path: str) -> Iterator[dict[str, Any]]:
    with storage.open(path) as file:
        table = pq.ParquetFile(file).read(
            columns=["add.path", "add.size", "add.stats", "add.partitionValues"]
        )
    for action in table["add"].to_pylist():
        if action is not None and action["path"] is not None:
            yield action | {"partitionValues": dict(action.get("partitionValues") or [])}


def _replay(commit: bytes, live: dict[str, dict[str, Any]]) -> None:
    for line in commit.splitlines():
        action = json.loads(line)
        if "add" in action:
            live[action["add"]["path"]] = action["add"]
        elif "remove" in action:
            live.pop(action["remove"]["path"], None)
