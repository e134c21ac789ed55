"""One change of a Delta table: read as it was at the beginning, written in one commit.

The commit is Delta's. It fails as a conflict if another run has changed the table since the
transaction began, and then nothing of it is there.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from kohort.pipeline import jvm
from kohort.pipeline.delta import arrow_files
from kohort.pipeline.delta.log import DataFile, Wanted, is_plain, live_files
from kohort.pipeline.delta.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from kohort.pipeline.schemas import Table

FILE_ROWS: Final = 20_000
"""Maximum rows of a file. A change to one group rewrites up to so many rows of other groups."""

SMALL_FILES_MAX: Final = 8
"""Files that are less than half full, above which a change merges them."""

SMALL_BYTES_MAX: Final = 4 << 20
"""A file of half as many rows as one may have is small as long as it has no more bytes."""

APPENDED_FILES_MAX: Final = 32
"""Small files above which an append merges them: a job that runs for weeks adds some a minute, and
each is opened for each batch."""

HELD_ROWS_MAX: Final = 10 * FILE_ROWS
"""Rows that are kept in memory before they are written."""

INDEX: Final = "delta.dataSkippingStatsColumns"
INDEXED: Final = ("cluster_id", "group", "sequence", "started_at", "at")
"""Columns whose smallest and greatest values are noted for each file of the history and of what is
found in it: those by which rows are looked for. Without a word it would be the first 32 columns,
which costs a small write more than its rows do.
"""

CHECKPOINT: Final = "delta.checkpointInterval"
CHECKPOINT_LEAST: Final = 20
CHECKPOINT_SPREAD: Final = 23
"""Commits between two checkpoints of a table's log: so many, and up to so many more by the table's
name. A batch changes most tables of a lake; every tenth would wait for a checkpoint of each, as
Delta has it without a word.
"""


class Transaction:
    """See the module. Raises what py4j and Arrow raise, and OSError."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """What is read of the table after this may decide what is written."""
        self._java = jvm.of(spark)
        self._storage = Storage(spark)
        self.root = root
        self._transaction = jvm.delta_log(spark, root).startTransaction()
        self._transaction.readWholeTable()
        self._snapshot = self._transaction.snapshot()
        self._now_ms = int(time.time() * 1000)

    @property
    def is_new(self) -> bool:
        """Whether the table is not there yet."""
        return int(self._snapshot.version()) < 0

    @cached_property
    def is_plain(self) -> bool:
        """Whether Python can do it; Spark can in any case."""
        return self.is_new or is_plain(self._snapshot)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the table's columns."""
        return frozenset(self._transaction.metadata().schema().fieldNames())

    @cached_property
    def files(self) -> list[DataFile]:
        """The table's files."""
        return live_files(self._java, self._snapshot, self._storage)

    def fits(self, table: Table) -> bool:
        """Whether the table is there, with these columns and no others."""
        return not self.is_new and self.names == set(table.names)

    def read(
        self,
        schema: pa.Schema,
        groups: Collection[tuple[str, str]] | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> pa.Table:
        """The rows, of these groups or of all, in these columns.

        With `sequences`, rows whose number is not within may be missing.
        """
        if groups is None:
            return self.rows_of(self.files, schema)
        wanted = Wanted({name for _, name in groups}, sequences)
        files = [file for file in self.files if wanted.may_be_in(file.stats)]
        rows = arrow_files.read(self._storage, self.root, files, schema, wanted)
        return rows.filter(is_of(rows, groups))

    def replacing(
        self, groups: Collection[tuple[str, str]] | None, table: Table | None = None
    ) -> Replacement:
        """Rows in the place of all rows of these groups, or of all rows without a word.

        With `table`, its columns become those of the table here, which is made if there is none.
        """
        return Replacement(self, groups, table)

    def append(self, rows: pa.Table, key: Sequence[str]) -> None:
        """Add rows whose `key` the table did not have when the transaction began."""
        del key  # The commit makes sure that no other writer has added them since.
        small = self._small(rows)
        added = [self.write(rows), *self._together(small, rows.schema)]
        self.commit(added, small, mode="Append", is_change=False)

    def write(self, rows: pa.Table) -> dict[str, Any]:
        """A file with these rows; returns what adds it to the table."""
        return arrow_files.write(self._storage, self.root, rows, INDEXED, self._now_ms)

    def _small(self, rows: pa.Table) -> list[DataFile]:
        """Files that `rows` are the last of many to be added beside; nothing if they are few."""
        # A column that is not known here would be lost.
        if self.names != set(rows.column_names):
            return []
        small = [
            file
            for file in self.files
            if file.stats.get("numRecords", FILE_ROWS) < FILE_ROWS // 2
            and file.action.get("size", 0) <= SMALL_BYTES_MAX
        ]
        return small if len(small) > APPENDED_FILES_MAX else []

    def _together(self, files: Sequence[DataFile], schema: pa.Schema) -> list[dict[str, Any]]:
        """Write the rows of these files to few new ones, marked as no change of data for readers
        that follow the table.
        """
        if not files:
            return []
        rows = in_order(self.rows_of(files, schema))
        parts = [rows.slice(at, FILE_ROWS) for at in range(0, rows.num_rows, FILE_ROWS)]
        return [self.write(part) | {"dataChange": False} for part in parts]

    def rows_of(self, files: Sequence[DataFile], schema: pa.Schema) -> pa.Table:
        """All rows of these files."""
        return arrow_files.read(self._storage, self.root, files, schema)

    def touched(self, groups: Collection[tuple[str, str]]) -> list[DataFile]:
        """The files that may have rows of these groups, and small ones if there are many."""
        wanted = Wanted({name for _, name in groups})
        chosen = [file for file in self.files if wanted.may_be_in(file.stats)]
        small = [
            file
            for file in self.files
            if file not in chosen and file.stats.get("numRecords", 0) < FILE_ROWS // 2
        ]
        return chosen + small if len(small) > SMALL_FILES_MAX else chosen

    def declare(self, schema: StructType, cut_by: Sequence[str] = ()) -> None:
        """Make the table, or give it these columns; `commit` has to follow."""
        metadata: dict[str, Any] = {
            "id": str(uuid.uuid4()) if self.is_new else self._snapshot.metadata().id(),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.json(),
            "partitionColumns": list(cut_by),
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
        """Let the table have the one and not the other any more: all of it, or nothing.

        Without `is_change`, the rows that are removed are among those that are added.
        """
        actions = self._java.java.util.ArrayList()
        for one in added:
            actions.add(self._action({"add": one}))
        for file in removed:
            removal = file.removal(self._now_ms) | {"dataChange": is_change}
            actions.add(self._action({"remove": removal}))
        converters = self._java.scala.jdk.javaapi.CollectionConverters
        self._transaction.commit(converters.asScala(actions).toSeq(), self._operation(mode))

    def _action(self, said: dict[str, Any]) -> Any:  # noqa: ANN401 - of the JVM.
        actions = self._java.org.apache.spark.sql.delta.actions
        return actions.Action.fromJson(json.dumps(said))

    def _operation(self, mode: str) -> object:
        """What the table's own history calls it."""
        nothing = self._java.scala.Option.empty()
        save_mode = getattr(self._java.org.apache.spark.sql.SaveMode, mode)
        delta = self._java.org.apache.spark.sql.delta
        return getattr(delta, "DeltaOperations$Write")(save_mode, *[nothing] * 8)


class Replacement:
    """Rows of some groups that take the place of others; only files are written again that have
    rows of these groups.
    """

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
        """Some of the rows; groups come in order, and the rows of one behind each other."""
        self._held.append(rows)
        self._held_rows += rows.num_rows
        # `commit` compares the rest with what is there: as a rule that is all rows, and few.
        if self._held_rows > HELD_ROWS_MAX:
            self._flush()

    def commit(self, schema: pa.Schema) -> bool:
        """Returns whether anything is different now."""
        transaction = self._transaction
        groups = self._groups
        touched = transaction.files if groups is None else transaction.touched(groups)
        # What fills files of its own is not what was there: it is not compared.
        if not (self._added or self._table) and self._is_there(touched, schema):
            return False
        if self._table is not None:
            transaction.declare(self._table.schema)
        if groups is not None:
            for file in touched:
                rows = transaction.rows_of([file], schema)
                stays = rows.filter(pc.invert(is_of(rows, groups)))
                if stays.num_rows:
                    self.add(stays)
        self._flush()
        transaction.commit(self._added, touched, mode="Overwrite")
        return True

    def _is_there(self, touched: Sequence[DataFile], schema: pa.Schema) -> bool:
        """Whether the files have just the rows that are held. No more of them are read than that,
        and what a file has of other groups.
        """
        held = pa.concat_tables([schema.empty_table(), *self._held])
        there = schema.empty_table()
        for file in touched:
            rows = self._transaction.rows_of([file], schema)
            if self._groups is not None:
                rows = rows.filter(is_of(rows, self._groups))
            there = pa.concat_tables([there, rows])
            if there.num_rows > held.num_rows:
                return False
        return bool(there.equals(held))

    def _flush(self) -> None:
        if not self._held:
            return
        rows = in_order(pa.concat_tables(self._held))
        for at in range(0, rows.num_rows, FILE_ROWS):
            self._added.append(self._transaction.write(rows.slice(at, FILE_ROWS)))
        self._held, self._held_rows = [], 0


def _configuration(names: Sequence[str], root: str) -> dict[str, str]:
    """Which columns are noted, and how often there is a checkpoint; nothing for tables of other
    things.
    """
    if "group" not in names:
        return {}
    between = CHECKPOINT_LEAST + crc32(root.rpartition("/")[2].encode()) % CHECKPOINT_SPREAD
    return {
        INDEX: ",".join(name for name in INDEXED if name in names),
        CHECKPOINT: str(between),
    }


def is_of(rows: pa.Table, groups: Collection[tuple[str, str]]) -> pa.Array:
    """A mask: whether each row is of one of these groups."""
    of: dict[str, list[str]] = {}
    for cluster_id, group in groups:
        of.setdefault(cluster_id, []).append(group)
    mask = pa.array([False] * rows.num_rows) if not of else None
    for cluster_id, names in of.items():
        here = pc.and_(
            pc.equal(rows["cluster_id"], cluster_id),
            pc.is_in(rows["group"], value_set=pa.array(names, pa.string())),
        )
        mask = here if mask is None else pc.or_(mask, here)
    return pc.fill_null(mask, False)


def in_order(rows: pa.Table) -> pa.Table:
    """The rows sorted by group; the rows of one group keep their order."""
    place = pa.array(range(rows.num_rows), pa.int64())
    keys = pa.table([rows["cluster_id"], rows["group"], place], names=["a", "b", "c"])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in "abc"])
    return rows.take(order)
