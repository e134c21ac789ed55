"""A lake of Delta tables under one root; see `Lake`.

A root is a directory, or whatever Hadoop's file systems can name; a table lies under its name. A
catalog may know the tables as well, each as an external one.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from delta.tables import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from kohort.insight.errors import ReportedError
from kohort.pipeline import jvm
from kohort.pipeline.catalog import Namespace, text
from kohort.pipeline.delta.by_spark import SparkTransaction
from kohort.pipeline.delta.transaction import Transaction
from kohort.pipeline.errors import ConflictError
from kohort.pipeline.faults import explained

_FORMAT: Final = "delta"

_LOG: Final = "_delta_log"
"""Alone, it is of a table that is being created, or that a kill has kept from it."""

_BEGUN: Final = "_first_write"
"""A file that lies where a table is to be while it is made by writing rows: what is beside it is
ours. It may be what a kill has left, of which Delta's VACUUM takes care, or what another run is
writing just now. Delta leaves alone what begins so.
"""


class DeltaLake:
    """See the module and `Lake`."""

    def __init__(self, spark: SparkSession, root: str, namespace: Namespace | None = None) -> None:
        """Open a lake. If there is a `namespace`, tables are entered there when they are made or
        found.
        """
        self.spark: Final = spark
        self.root: Final = root.rstrip("/") or "/"
        self._known: set[str] = set()
        self._namespace = namespace
        self._entered: set[str] = set()

    def path(self, name: str) -> str:
        """Where a table lies."""
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        with explained(self.called(name)):
            return DeltaTable.isDeltaTable(self.spark, self.path(name))

    def read(self, name: str) -> DataFrame:
        if not self.exists(name):
            raise ReportedError(
                f"the lake {self.root} has no table {name}; has the job run that makes it?"
            )
        return self.spark.read.format(_FORMAT).load(self.path(name))

    def create(self, name: str, schema: StructType, cut_by: Sequence[str] = ()) -> str:
        with explained(self.called(name)):
            if not self._check_place(name):
                self._make(name, schema, cut_by)
            elif self._is_short_of(name, schema):
                self._add_columns(name, schema)
            self._enter(name)
            # DeltaTable.detail() says it too, by a query that takes seconds.
            return str(jvm.delta_log(self.spark, self.path(name)).unsafeVolatileTableId())

    def version(self, name: str) -> int:
        with explained(self.called(name)):
            nothing = jvm.of(self.spark).scala.Option.empty()
            log = jvm.delta_log(self.spark, self.path(name))
            return int(log.update(False, nothing, nothing).version())

    def append_once(self, frame: DataFrame, name: str, *, app_id: str, batch_id: int) -> None:
        writer = (
            frame.write.format(_FORMAT)
            .mode("append")
            .option("mergeSchema", "true")
            .option("txnAppId", app_id)
            .option("txnVersion", batch_id)
        )
        with self._writing(name):
            writer.save(self.path(name))

    def has_batch(self, name: str, app_id: str, batch_id: int) -> bool:
        with explained(self.called(name)):
            log = jvm.delta_log(self.spark, self.path(name))
            return int(log.startTransaction().txnVersion(app_id)) >= batch_id

    def begin(self, name: str) -> Transaction | SparkTransaction:
        with explained(self.called(name)):
            self._check_place(name)
            transaction = Transaction(self.spark, self.path(name))
            if transaction.is_plain:
                return transaction
            return SparkTransaction(self.spark, self.path(name))

    def merge_new(
        self, frame: DataFrame, name: str, *, on: Sequence[str], is_unique: bool = False
    ) -> None:
        same = " AND ".join(f"old.`{column}` <=> new.`{column}`" for column in on)
        rows = frame if is_unique else frame.dropDuplicates(list(on))
        with explained(self.called(name)):
            self.create(name, frame.schema)
            (
                DeltaTable.forPath(self.spark, self.path(name))
                .alias("old")
                .merge(rows.alias("new"), same)
                .withSchemaEvolution()
                .whenNotMatchedInsertAll()
                .execute()
            )

    def overwrite(self, frame: DataFrame, name: str) -> None:
        writer = frame.write.format(_FORMAT).mode("overwrite").option("overwriteSchema", "true")
        with self._writing(name):
            writer.save(self.path(name))

    def forget(self, name: str, column: str, before: datetime) -> None:
        with explained(self.called(name)):
            DeltaTable.forPath(self.spark, self.path(name)).delete(f.col(column) < f.lit(before))

    def compact(self, name: str) -> None:
        with explained(self.called(name)):
            DeltaTable.forPath(self.spark, self.path(name)).optimize().executeCompaction()

    def vacuum(self, name: str, hours: int) -> None:
        # A query for each that has nothing to be done would be most of the time.
        if not self._has_stale_files(name, hours):
            return
        with explained(self.called(name)):
            DeltaTable.forPath(self.spark, self.path(name)).vacuum(hours)

    def file_count(self, name: str) -> int:
        with explained(self.called(name)):
            change = self.begin(name)
            if isinstance(change, Transaction):
                return len(change.files)
            log = jvm.delta_log(self.spark, self.path(name))
            return int(log.unsafeVolatileSnapshot().numOfFiles())

    def _has_stale_files(self, name: str, hours: int) -> bool:
        """Whether files may be there that have not belonged to the table for so many hours."""
        with explained(self.called(name)):
            change = self.begin(name)
            if not isinstance(change, Transaction):
                return True
            live = {file.path for file in change.files}
            before_ms = (time.time() - hours * 3600) * 1000
            place = self._place(self.path(name))
            return any(
                one.isFile()
                and one.getModificationTime() < before_ms
                and str(one.getPath().getName()) not in live
                for one in self._files(place).listStatus(place)
            )

    def names(self) -> list[str]:
        # In the root and in the directories in it.
        with explained(f"the lake {self.root}"):
            return sorted(
                table
                for name in self._directories("")
                for table in ([name] if self.exists(name) else self._directories(name))
                if self.exists(table)
            )

    def _directories(self, below: str) -> list[str]:
        place = self._place(f"{self.root}/{below}".rstrip("/"))
        files = self._files(place)
        if not files.exists(place):
            return []
        prefix = f"{below}/" if below else ""
        found = [one for one in files.listStatus(place) if one.isDirectory()]
        return [f"{prefix}{one.getPath().getName()}" for one in found]

    def _enter(self, name: str) -> None:
        """Let the catalog know the table, as one that lies here.

        Raises:
            ReportedError: under its name the catalog knows another one.
        """
        if self._namespace is None or name in self._entered:
            return
        table = self._namespace.table(name)
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._namespace.quoted}")
        where = text(self.path(name))
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {table} USING {_FORMAT} LOCATION {where}")
        rows = self.spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        known = next((row["data_type"] for row in rows if row["col_name"] == "Location"), None)
        if known is None or self._whole(known) != self._whole(self.path(name)):
            raise ReportedError(
                f"{self.called(name)}: the catalog's {table} is another one, at {known}"
            )
        self._entered.add(name)

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Rows are written, by which the table may come to be."""
        with explained(self.called(name)):
            if self._check_place(name):
                yield
                return
            begun = self._place(f"{self.path(name)}/{_BEGUN}")
            files = self._files(begun)
            files.create(begun).close()
            yield
            files.delete(begun, False)

    def _is_short_of(self, name: str, schema: StructType) -> bool:
        return not _lowered(schema.names) <= self._columns(name)

    def _columns(self, name: str) -> set[str]:
        snapshot = jvm.delta_log(self.spark, self.path(name)).unsafeVolatileSnapshot()
        return _lowered(one["name"] for one in json.loads(snapshot.schema().json())["fields"])

    def _make(self, name: str, schema: StructType, cut_by: Sequence[str]) -> None:
        if self._is_begun(name) and not cut_by:
            # Delta creates tables only where nothing is at all.
            self._add_columns(name, schema)
            return
        transaction = Transaction(self.spark, self.path(name))
        try:
            transaction.declare(schema, cut_by)
            transaction.commit([], [], mode="Append")
        except (PySparkException, Py4JError) as error:
            # There was nothing just before.
            if DeltaTable.isDeltaTable(self.spark, self.path(name)):
                raise ConflictError(
                    f"{self.called(name)}: another run is making it at the same time"
                ) from error
            raise

    def _add_columns(self, name: str, schema: StructType) -> None:
        nothing = self.spark.createDataFrame([], schema).write.format(_FORMAT).mode("append")
        nothing.option("mergeSchema", "true").save(self.path(name))

    def _check_place(self, name: str) -> bool:
        """Whether the table is there.

        Raises:
            ReportedError: files of something else are: Delta would make a table around them.
        """
        if name in self._known:
            return True
        if not DeltaTable.isDeltaTable(self.spark, self.path(name)):
            place = self._place(self.path(name))
            files = self._files(place)
            if not files.exists(place) or not len(files.listStatus(place)) or self._is_begun(name):
                return False
            # Another run may have ended its first write since the first look.
            if not DeltaTable.isDeltaTable(self.spark, self.path(name)):
                raise ReportedError(
                    f"{self.called(name)}: files are there that are not a table's. "
                    "Is that directory a lake of this pipeline?"
                )
        self._known.add(name)
        return True

    def _is_begun(self, name: str) -> bool:
        place = self._place(self.path(name))
        files = self._files(place)
        if not files.exists(place):
            return False
        names = {str(one.getPath().getName()) for one in files.listStatus(place)}
        return _BEGUN in names or names == {_LOG}

    def _place(self, path: str) -> Any:  # noqa: ANN401 - of the JVM.
        return jvm.of(self.spark).org.apache.hadoop.fs.Path(path)

    def _files(self, place: Any) -> Any:  # noqa: ANN401 - of the JVM, both.
        return place.getFileSystem(jvm.hadoop_configuration(self.spark))

    def _whole(self, path: str) -> str:
        """The path with its file system, which a catalog notes and a lake's root may leave out."""
        place = self._place(path)
        return str(self._files(place).makeQualified(place).toString())

    def called(self, name: str) -> str:
        return f"the table {name} of {self.root}"


def _lowered(names: Iterable[str]) -> set[str]:
    """The names as Delta compares them."""
    return {name.lower() for name in names}
