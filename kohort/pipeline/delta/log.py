"""Which files a version of a table has, by its log, as Delta's protocol describes it.

Delta itself says which log files make up the version; they are replayed here: files that were added
and not removed again. A table whose protocol asks for more than that is left to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from kohort.pipeline.delta.storage import Storage

READER_VERSION: Final = 1
WRITER_VERSION: Final = 2
"""Tables of these protocols, or lower ones, are files of rows and nothing else."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table."""

    action: dict[str, Any]
    """What the log says of it: Delta's `add`."""

    @property
    def path(self) -> str:
        """The file's path below the table, or an absolute one."""
        return unquote(str(self.action["path"]))

    @property
    def stats(self) -> dict[str, Any]:
        """The file's number of rows and the bounds of its columns; empty if they were not noted."""
        found: dict[str, Any] = json.loads(self.action.get("stats") or "{}")
        return found

    def removal(self, now_ms: int) -> dict[str, Any]:
        """The action that takes it out of the table."""
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
    """Rows that are looked for."""

    groups: Collection[str]
    sequences: tuple[int, int] | None = None
    """The first and the last number of them; None: any."""

    def may_be_in(self, stats: Mapping[str, Any]) -> bool:
        """Whether a file with these statistics may have some. Bounds of long texts are shortened
        in a way that keeps them below and above what they stand for.
        """
        least, greatest = stats.get("minValues") or {}, stats.get("maxValues") or {}
        return stats.get("numRecords") != 0 and self.may_be_between(least, greatest)

    def may_be_between(self, least: Mapping[str, Any], greatest: Mapping[str, Any]) -> bool:
        """Whether rows may be among those with these least and greatest values."""
        if self.sequences is not None and "sequence" in least and "sequence" in greatest:
            first, last = self.sequences
            if last < least["sequence"] or first > greatest["sequence"]:
                return False
        if "group" not in least or "group" not in greatest:
            return True
        return any(least["group"] <= group <= greatest["group"] for group in self.groups)


def is_plain(snapshot: Any) -> bool:  # noqa: ANN401 - of the JVM.
    """Whether the table's files are its rows, so that Python may read and write them."""
    protocol = snapshot.protocol()
    return bool(
        protocol.minReaderVersion() <= READER_VERSION
        and protocol.minWriterVersion() <= WRITER_VERSION
        and not snapshot.metadata().partitionColumns().size()
    )


def live_files(java: Any, snapshot: Any, storage: Storage) -> list[DataFile]:  # noqa: ANN401 - of the JVM.
    """The files of a version of a plain table, in the order in which they were added."""
    if snapshot.version() < 0:
        return []
    segment = snapshot.logSegment()
    lists = java.scala.jdk.javaapi.CollectionConverters
    checkpoints = [
        str(one.getPath().toString())
        for one in lists.asJava(segment.checkpointProvider().topLevelFiles())
    ]
    if any(path.endswith(".json") or ".checkpoint.parquet" not in path for path in checkpoints):
        # Checkpoints of several parts, or with files beside them: Delta's own reading of them.
        actions = (json.loads(file.json()) for file in snapshot.allFiles().collect())
        return [DataFile(action["add"]) for action in actions]
    found: dict[str, dict[str, Any]] = {}
    for path in checkpoints:
        for action in _checkpoint(storage, path):
            found[action["path"]] = action
    for delta in lists.asJava(segment.deltas()):
        _replay(storage.read(str(delta.getPath().toString())), found)
    return [DataFile(action) for action in found.values()]


def _checkpoint(storage: Storage, path: str) -> Iterator[dict[str, Any]]:
    with storage.open(path) as file:
        table = pq.ParquetFile(file).read(
            columns=["add.path", "add.size", "add.stats", "add.partitionValues"]
        )
    for action in table["add"].to_pylist():
        if action is not None and action["path"] is not None:
            yield action | {"partitionValues": dict(action.get("partitionValues") or [])}


def _replay(commit: bytes, found: dict[str, dict[str, Any]]) -> None:
    for line in commit.splitlines():
        action = json.loads(line)
        if "add" in action:
            found[action["add"]["path"]] = action["add"]
        elif "remove" in action:
            found.pop(action["remove"]["path"], None)
