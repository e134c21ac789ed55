"""A change of a Delta table: reads one version, and writes the next one in a single commit.

Delta performs the commit. If another run has changed the table since the transaction began, the
commit fails as a conflict and nothing is changed.
"""

import json
import time
import uuid
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from kohort.pipeline import jvm
from kohort.pipeline.delta import arrow_files
from kohort.pipeline.delta.log import DataFile, Wanted, is_plain, live_files
from kohort.pipeline.delta.storage import Storage
from kohort.pipeline.schemas import Table

FILE_ROWS: Final = 20_000
"""Maximum number of rows in a file. A change of one group rewrites up to this many rows of
others."""

SMALL_FILES_MAX: Final = 8
"""If a table has more files that are less than half full, a change merges them."""

SMALL_BYTES_MAX: Final = 4 << 20
"""A file with less than half of FILE_ROWS is small if it also has at most this many bytes."""

APPENDED_FILES_MAX: Final = 32
"""If a table has more small files, an append merges them: a job that runs for weeks adds some per
minute, and each batch opens all of them."""

HELD_ROWS_MAX: Final = 10 * FILE_ROWS
"""Maximum number of rows held in memory before they are written."""

INDEX: Final = "delta.dataSkippingStatsColumns"
INDEXED: Final = ("cluster_id", "group", "sequence", "started_at", "at")
"""The columns with statistics in each file of the history and findings, because rows are
selected by them. Delta's default is the first 32 columns, which would cost a small write more
than its rows."""

CHECKPOINT: Final = "delta.checkpointInterval"
CHECKPOINT_LEAST: Final = 20
CHECKPOINT_SPREAD: Final = 23
"""Commits between checkpoints of a table's log: CHECKPOINT_LEAST and up to CHECKPOINT_SPREAD more,
depending on the table's name. With Delta's default, every tenth batch would write the checkpoints
of almost all tables."""


class Transaction:
    """A transaction of one table. Raises py4j's and Arrow's errors, and OSError."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Begin the transaction; rows read from now on may decide what is written."""
        self._java = jvm.packages(spark)
        self._storage = Storage(spark)
        self.root = root
        self._transaction = jvm.delta_log(spark, root).startTransaction()
        self._transaction.readWholeTable()
        self._snapshot = self._transaction.snapshot()
        self._now_ms = int(time.time() * 1000)

    @property
    def is_new(self) -> bool:
        """Whether the table does not exist yet."""
        return int(self._snapshot.version()) < 0

    @cached_property
    def is_plain(self) -> bool:
        """Whether Python can read and write the table, without Spark."""
        return self.is_new or is_plain(self._snapshot)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self._transaction.metadata().schema().fieldNames())

    @cached_property
    def files(self) -> list[DataFile]:
        return live_files(self._java, self._snapshot, self._storage)

    def fits(self, table: Table) -> bool:
        """Whether the table exists with exactly these columns."""
        return not self.is_new and self.names == set(table.names)

    def read(
        self,
        schema: pa.Schema,
        groups: Collection[tuple[str, str]] | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Return the rows of these groups, or all rows, in these columns.

        With `sequences`, rows with other sequence numbers may be missing.
        """
        if groups is None:
            return self.rows_of(self.files, schema)
        wanted = Wanted({name for _, name in groups}, sequences)
        files = [file for file in self.files if wanted.may_be_in(file.stats)]
        rows = arrow_files.read(self._storage, self.root, files, schema, wanted)
        return rows.filter(group_mask(rows, groups))

    def replacing(
        self, groups: Collection[tuple[str, str]] | None, table: Table | None = None
    ) -> "Replacement":
        """Return a replacement for the rows of these groups, or for all rows if None.

        With `table`, the table gets its columns, and is created if it does not exist.
        """
        return Replacement(self, groups, table)

    def append(self, rows: pa.Table, key: Sequence[str]) -> None:
        """Add rows whose `key` was not in the table when the transaction began."""
        del key  # The commit fails if another writer has added them since.
        small = self._small(rows)
        added = [self.write(rows), *self._merged(small, rows.schema)]
        self.commit(added, small, mode="Append", is_change=False)

    def write(self, rows: pa.Table) -> dict[str, Any]:
        """Write the rows to a file; return the action that adds it."""
        return arrow_files.write(self._storage, self.root, rows, INDEXED, self._now_ms)

    def _small(self, rows: pa.Table) -> list[DataFile]:
        """Return the small files to merge with `rows`; empty if they are few."""
        # Columns unknown to this version would be lost.
        if self.names != set(rows.column_names):
            return []
        small = [
            file
            for file in self.files
            if file.stats.get("numRecords", FILE_ROWS) < FILE_ROWS // 2
            and file.action.get("size", 0) <= SMALL_BYTES_MAX
        ]
        return small if len(small) > APPENDED_FILES_MAX else []

    def _merged(self, files: Sequence[DataFile], schema: pa.Schema) -> list[dict[str, Any]]:
        """Merge these files into few new ones, marked as not changing data for readers that follow
        the table.
        """
        if not files:
            return []
        rows = sorted_by_group(self.rows_of(files, schema))
        parts = [rows.slice(at, FILE_ROWS) for at in range(0, rows.num_rows, FILE_ROWS)]
        return [self.write(part) | {"dataChange": False} for part in parts]

    def rows_of(self, files: Sequence[DataFile], schema: pa.Schema) -> pa.Table:
        return arrow_files.read(self._storage, self.root, files, schema)

    def touched(self, groups: Collection[tuple[str, str]]) -> list[DataFile]:
        """Return the files that may have rows of these groups; and the small files, if there are
        many.
        """
        wanted = Wanted({name for _, name in groups})
        chosen = [file for file in self.files if wanted.may_be_in(file.stats)]
        small = [
            file
            for file in self.files
            if file not in chosen and file.stats.get("numRecords", 0) < FILE_ROWS // 2
        ]
        return chosen + small if len(small) > SMALL_FILES_MAX else chosen

    def declare(self, schema: StructType, partition_by: Sequence[str] = ()) -> None:
        """Create the table, or change its columns; requires a `commit`."""
        metadata: dict[str, Any] = {
            "id": str(uuid.uuid4()) if self.is_new else self._snapshot.metadata().id(),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.json(),
            "partitionColumns": list(partition_by),
            "configuration": _configuration(schema.names, self.root),
            "createdTime": self._now_ms,
        }
        action = self._action({"metaData": metadata})
        if self.is_new:
            self._transaction.updateMetadataForNewTable(action)
        else:
            self._transaction.updateMetadata(action, False)

    def commit(
        self,
        added: Sequence[dict[str, Any]],
        removed: Sequence[DataFile],
        *,
        mode: str,
        is_change: bool = True,
    ) -> None:
        """Add and remove these files in one commit.

        Without `is_change`, the added files contain all rows of the removed ones.
        """
        actions = self._java.java.util.ArrayList()
        for action in added:
            actions.add(self._action({"add": action}))
        for file in removed:
            removal = file.removal(self._now_ms) | {"dataChange": is_change}
            actions.add(self._action({"remove": removal}))
        converters = self._java.scala.jdk.javaapi.CollectionConverters
        self._transaction.commit(converters.asScala(actions).toSeq(), self._operation(mode))

    def _action(self, action: dict[str, Any]) -> Any:  # noqa: ANN401 - a Java object.
        actions = self._java.org.apache.spark.sql.delta.actions
        return actions.Action.fromJson(json.dumps(action))

    def _operation(self, mode: str) -> object:
        nothing = self._java.scala.Option.empty()
        save_mode = getattr(self._java.org.apache.spark.sql.SaveMode, mode)
        delta = self._java.org.apache.spark.sql.delta
        return getattr(delta, "DeltaOperations$Write")(save_mode, *[nothing] * 8)


class Replacement:
    """Replaces the rows of some groups; rewrites only files that contain rows of these groups."""

    def __init__(
        self,
        transaction: Transaction,
        groups: Collection[tuple[str, str]] | None,
        table: Table | None,
    ) -> None:
        self._transaction, self._groups, self._table = transaction, groups, table
        self._added: list[dict[str, Any]] = []
        self._held: list[pa.Table] = []
        self._held_rows = 0

    def add(self, rows: pa.Table) -> None:
        """Add some of the rows, sorted by group."""
        self._held.append(rows)
        self._held_rows += rows.num_rows
        # `commit` compares the remaining rows with the table: usually these are all rows, and few.
        if self._held_rows > HELD_ROWS_MAX:
            self._flush()

    def commit(self, schema: pa.Schema) -> bool:
        """Return whether the table changed."""
        transaction = self._transaction
        groups = self._groups
        touched = transaction.files if groups is None else transaction.touched(groups)
        # Rows that were already written to new files are not compared.
        if not (self._added or self._table) and self._is_present(touched, schema):
            return False
        if self._table is not None:
            transaction.declare(self._table.schema)
        if groups is not None:
            for file in touched:
                rows = transaction.rows_of([file], schema)
                stays = rows.filter(pc.invert(group_mask(rows, groups)))
                if stays.num_rows:
                    self.add(stays)
        self._flush()
        transaction.commit(self._added, touched, mode="Overwrite")
        return True

    def _is_present(self, touched: Sequence[DataFile], schema: pa.Schema) -> bool:
        """Whether the files contain exactly the held rows. Stops reading if there are more."""
        held = pa.concat_tables([schema.empty_table(), *self._held])
        present = schema.empty_table()
        for file in touched:
            rows = self._transaction.rows_of([file], schema)
            if self._groups is not None:
                rows = rows.filter(group_mask(rows, self._groups))
            present = pa.concat_tables([present, rows])
            if present.num_rows > held.num_rows:
                return False
        return bool(present.equals(held))

    def _flush(self) -> None:
        if not self._held:
            return
        rows = sorted_by_group(pa.concat_tables(self._held))
        for at in range(0, rows.num_rows, FILE_ROWS):
            self._added.append(self._transaction.write(rows.slice(at, FILE_ROWS)))
        self._held, self._held_rows = [], 0


def _configuration(names: Sequence[str], root: str) -> dict[str, str]:
    """Return the settings for statistics and checkpoints; empty for tables without groups."""
    if "group" not in names:
        return {}
    between = CHECKPOINT_LEAST + crc32(root.rpartition("/")[2].encode()) % CHECKPOINT_SPREAD
    return {
        INDEX: ",".join(name for name in INDEXED if name in names),
        CHECKPOINT: str(between),
    }


def group_mask(rows: pa.Table, groups: Collection[tuple[str, str]]) -> pa.Array:
    groups_by_cluster: dict[str, list[str]] = {}
    for cluster_id, group in groups:
        groups_by_cluster.setdefault(cluster_id, []).append(group)
    mask = pa.array([False] * rows.num_rows) if not groups_by_cluster else None
    for cluster_id, names in groups_by_cluster.items():
        matches = pc.and_(
            pc.equal(rows["cluster_id"], cluster_id),
            pc.is_in(rows["group"], value_set=pa.array(names, pa.string())),
        )
        mask = matches if mask is None else pc.or_(mask, matches)
    return pc.fill_null(mask, False)


def sorted_by_group(rows: pa.Table) -> pa.Table:
    """Sort the rows by group; rows of one group keep their order."""
    place = pa.array(range(rows.num_rows), pa.int64())
    keys = pa.table([rows["cluster_id"], rows["group"], place], names=["a", "b", "c"])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in "abc"])
    return rows.take(order)
