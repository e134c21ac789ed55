"""A lake of Delta tables under one root; implements `Lake`.

The root is a directory or any URL that Hadoop supports; a table is stored under its name. A catalog
may list the tables too, as external ones.
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
"""A directory with only this entry belongs to a table whose creation is in progress, or was
killed."""

_BEGUN: Final = "_first_write"
"""Marker file in the directory of a table whose first rows are being written: the other files there
are ours. They were left by a killed run, in which case Delta's VACUUM removes them, or another run
is writing them. Delta ignores names that begin with an underscore."""


class DeltaLake:
    def __init__(self, spark: SparkSession, root: str, namespace: Namespace | None = None) -> None:
        """Open a lake; its tables are registered in `namespace`, if given."""
        self.spark: Final = spark
        self.root: Final = root.rstrip("/") or "/"
        self._known: set[str] = set()
        self._namespace = namespace
        self._registered: set[str] = set()

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        with explained(self.label(name)):
            return DeltaTable.isDeltaTable(self.spark, self.path(name))

    def read(self, name: str) -> DataFrame:
        if not self.exists(name):
            raise ReportedError(
                f"the lake {self.root} has no table {name}; run the job that creates it first"
            )
        return self.spark.read.format(_FORMAT).load(self.path(name))

    def create(self, name: str, schema: StructType, partition_by: Sequence[str] = ()) -> str:
        with explained(self.label(name)):
            if not self._check_place(name):
                self._make(name, schema, partition_by)
            elif self._lacks_columns(name, schema):
                self._add_columns(name, schema)
            self._register(name)
            # DeltaTable.detail() returns it too, but by a query that takes seconds.
            return str(jvm.delta_log(self.spark, self.path(name)).unsafeVolatileTableId())

    def version(self, name: str) -> int:
        with explained(self.label(name)):
            nothing = jvm.packages(self.spark).scala.Option.empty()
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
        with explained(self.label(name)):
            log = jvm.delta_log(self.spark, self.path(name))
            return int(log.startTransaction().txnVersion(app_id)) >= batch_id

    def begin(self, name: str) -> Transaction | SparkTransaction:
        with explained(self.label(name)):
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
        with explained(self.label(name)):
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
        with explained(self.label(name)):
            DeltaTable.forPath(self.spark, self.path(name)).delete(f.col(column) < f.lit(before))

    def compact(self, name: str) -> None:
        with explained(self.label(name)):
            DeltaTable.forPath(self.spark, self.path(name)).optimize().executeCompaction()

    def vacuum(self, name: str, hours: int) -> None:
        # Skip tables without stale files: a query for each would dominate the run time.
        if not self._has_stale_files(name, hours):
            return
        with explained(self.label(name)):
            DeltaTable.forPath(self.spark, self.path(name)).vacuum(hours)

    def file_count(self, name: str) -> int:
        with explained(self.label(name)):
            change = self.begin(name)
            if isinstance(change, Transaction):
                return len(change.files)
            log = jvm.delta_log(self.spark, self.path(name))
            return int(log.unsafeVolatileSnapshot().numOfFiles())

    def _has_stale_files(self, name: str, hours: int) -> bool:
        """Whether there may be files that have not belonged to the table for `hours`."""
        with explained(self.label(name)):
            change = self.begin(name)
            if not isinstance(change, Transaction):
                return True
            live = {file.path for file in change.files}
            before_ms = (time.time() - hours * 3600) * 1000
            place = self._place(self.path(name))
            return any(
                status.isFile()
                and status.getModificationTime() < before_ms
                and str(status.getPath().getName()) not in live
                for status in self._files(place).listStatus(place)
            )

    def names(self) -> list[str]:
        # Tables are in the root and in its directories.
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
        directories = [status for status in files.listStatus(place) if status.isDirectory()]
        return [f"{prefix}{status.getPath().getName()}" for status in directories]

    def _register(self, name: str) -> None:
        """Register the table in the catalog as an external one at this path.

        Raises:
            ReportedError: the catalog has another table with this name.
        """
        if self._namespace is None or name in self._registered:
            return
        table = self._namespace.table(name)
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._namespace.quoted}")
        where = text(self.path(name))
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {table} USING {_FORMAT} LOCATION {where}")
        rows = self.spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        known = next((row["data_type"] for row in rows if row["col_name"] == "Location"), None)
        if known is None or self._qualified(known) != self._qualified(self.path(name)):
            raise ReportedError(
                f"{self.label(name)}: {table} in the catalog is another table, at {known}"
            )
        self._registered.add(name)

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Mark the table's directory while rows are written that may create it."""
        with explained(self.label(name)):
            if self._check_place(name):
                yield
                return
            begun = self._place(f"{self.path(name)}/{_BEGUN}")
            files = self._files(begun)
            files.create(begun).close()
            yield
            files.delete(begun, False)

    def _lacks_columns(self, name: str, schema: StructType) -> bool:
        return not _lowered(schema.names) <= self._columns(name)

    def _columns(self, name: str) -> set[str]:
        snapshot = jvm.delta_log(self.spark, self.path(name)).unsafeVolatileSnapshot()
        return _lowered(field["name"] for field in json.loads(snapshot.schema().json())["fields"])

    def _make(self, name: str, schema: StructType, partition_by: Sequence[str]) -> None:
        if self._is_begun(name) and not partition_by:
            # Delta creates tables only in empty directories.
            self._add_columns(name, schema)
            return
        transaction = Transaction(self.spark, self.path(name))
        try:
            transaction.declare(schema, partition_by)
            transaction.commit([], [], mode="Append")
        except (PySparkException, Py4JError) as error:
            # The directory was empty before.
            if DeltaTable.isDeltaTable(self.spark, self.path(name)):
                raise ConflictError(
                    f"{self.label(name)}: another run is creating it at the same time"
                ) from error
            raise

    def _add_columns(self, name: str, schema: StructType) -> None:
        nothing = self.spark.createDataFrame([], schema).write.format(_FORMAT).mode("append")
        nothing.option("mergeSchema", "true").save(self.path(name))

    def _check_place(self, name: str) -> bool:
        """Whether the table exists.

        Raises:
            ReportedError: the directory has other files; Delta would create a table around them.
        """
        if name in self._known:
            return True
        if not DeltaTable.isDeltaTable(self.spark, self.path(name)):
            place = self._place(self.path(name))
            files = self._files(place)
            if not files.exists(place) or not len(files.listStatus(place)) or self._is_begun(name):
                return False
            # Another run may have finished its first write meanwhile.
            if not DeltaTable.isDeltaTable(self.spark, self.path(name)):
                raise ReportedError(
                    f"{self.label(name)}: the directory contains files of something else. "
                    "Is that directory a lake of this pipeline?"
                )
        self._known.add(name)
        return True

    def _is_begun(self, name: str) -> bool:
        place = self._place(self.path(name))
        files = self._files(place)
        if not files.exists(place):
            return False
        names = {str(status.getPath().getName()) for status in files.listStatus(place)}
        return _BEGUN in names or names == {_LOG}

    def _place(self, path: str) -> Any:  # noqa: ANN401 - a Java object.
        return jvm.packages(self.spark).org.apache.hadoop.fs.Path(path)

    def _files(self, place: Any) -> Any:  # noqa: ANN401 - Java objects.
        return place.getFileSystem(jvm.hadoop_configuration(self.spark))

    def _qualified(self, path: str) -> str:
        """Return the path with its file system, which the catalog stores and a lake's root may
        omit.
        """
        place = self._place(path)
        return str(self._files(place).makeQualified(place).toString())

    def label(self, name: str) -> str:
        return f"the table {name} of {self.root}"


def _lowered(names: Iterable[str]) -> set[str]:
    """Return the names in lower case, as Delta compares them."""
    return {name.lower() for name in names}
