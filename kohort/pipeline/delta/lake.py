"""Stores the tables of a lake as Delta tables under one root; implements the interface `Lake`.

The root is a directory or any URL that Hadoop supports; a table is stored under its name. A catalog
may list the tables too, as external tables.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from kohort.insight.errors import ReportedError
from kohort.pipeline import jvm
from kohort.pipeline.catalog import Namespace, text
from kohort.pipeline.delta.tables import FILE_BYTES, SMALL_FILE_BYTES, DeltaChange, DeltaTables
from kohort.pipeline.errors import ConflictError
from kohort.pipeline.faults import explained

_FORMAT: Final = "delta"

_LOG: Final = "_delta_log"
"""A directory with only this entry belongs to a table whose creation is in progress or was
interrupted."""

SMALL_FILES_MAX: Final = 100
"""Maximum number of small files that appends leave. A job that runs for weeks adds some files per
minute, and each batch opens all of them. The maximum is not lower, because Spark takes about 40
seconds of CPU time to compact a million events."""

_OPTIMIZE: Final = {
    # By default, each compaction would rewrite all files up to 1 GB.
    "spark.databricks.delta.optimize.minFileSize": SMALL_FILE_BYTES,
    "spark.databricks.delta.optimize.maxFileSize": FILE_BYTES,
}

_OF_S3A: Final = {
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
}
"""Hadoop's S3 settings, without the prefix `spark.hadoop.fs.s3a.`, and their names in delta-rs."""


class DeltaLake:
    def __init__(self, spark: SparkSession, root: str, namespace: Namespace | None = None) -> None:
        """Open a lake; its tables are registered in `namespace`, if given."""
        self.spark: Final = spark
        for option, size in _OPTIMIZE.items():
            if spark.conf.get(option, None) is None:
                spark.conf.set(option, str(size))
        self.root: Final = root.rstrip("/") or "/"
        self.tables: Final = DeltaTables(self.root, _storage_options(spark, self.root))
        self._known: set[str] = set()
        self._namespace = namespace
        self._registered: set[str] = set()

    def path(self, name: str) -> str:
        return self.tables.path(name)

    def exists(self, name: str) -> bool:
        with explained(self.label(name)):
            return self.tables.exists(name)

    def read(self, name: str, offsets: tuple[int, int] | None = None) -> DataFrame:
        del offsets  # Spark skips files by the statistics in the table's log.
        if not self.exists(name):
            raise ReportedError(
                f"the lake {self.root} has no table {name}; run the job that creates it first"
            )
        return self.spark.read.format(_FORMAT).load(self.path(name))

    def create(self, name: str, schema: StructType, partition_by: Sequence[str] = ()) -> str:
        with explained(self.label(name)):
            if not self._check_place(name):
                self.tables.make(name, schema, partition_by)
            table = self.tables.open(name)
            present = {column.name.lower() for column in table.schema().fields}
            if not {column.lower() for column in schema.names} <= present:
                self._add_columns(name, schema)
            self._register(name)
            return str(table.metadata().id)

    def version(self, name: str) -> int:
        with explained(self.label(name)):
            return self.tables.open(name).version()

    def append_once(self, frame: DataFrame, name: str, *, app_id: str, batch_id: int) -> None:
        self.create(name, frame.schema)
        with explained(self.label(name)):
            (
                frame.write.format(_FORMAT)
                .mode("append")
                .option("mergeSchema", "true")
                .option("txnAppId", app_id)
                .option("txnVersion", batch_id)
                .save(self.path(name))
            )

    def has_batch(self, name: str, app_id: str, batch_id: int) -> bool:
        with explained(self.label(name)):
            last = self.tables.open(name).transaction_version(app_id)
            return last is not None and last >= batch_id

    def begin(self, name: str) -> DeltaChange:
        with explained(self.label(name)):
            self._check_place(name)
            return self.tables.begin(name)

    def merge_new(self, frame: DataFrame, name: str, *, on: Sequence[str]) -> None:
        same = " AND ".join(f"old.`{column}` <=> new.`{column}`" for column in on)
        rows = frame.dropDuplicates(list(on))
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

    def forget(self, name: str, column: str, before: datetime) -> None:
        with explained(self.label(name)):
            DeltaTable.forPath(self.spark, self.path(name)).delete(f.col(column) < f.lit(before))

    def compact(self, name: str) -> None:
        # Ignore a conflict: another run has compacted the files, or deleted some of their rows.
        with suppress(ConflictError), explained(self.label(name)):
            DeltaTable.forPath(self.spark, self.path(name)).optimize().executeCompaction()

    def compact_appended(self, name: str) -> None:
        with explained(self.label(name)):
            count = self.tables.small_file_count(name)
        if count > SMALL_FILES_MAX:
            self.compact(name)

    def vacuum(self, name: str, hours: int) -> None:
        with explained(self.label(name)):
            # Includes files of killed writes, which the log does not list.
            self.tables.open(name).vacuum(hours, dry_run=False, full=True)

    def file_count(self, name: str) -> int:
        with explained(self.label(name)):
            return len(self.tables.open(name).file_uris())

    def names(self) -> list[str]:
        # Tables are in the root, such as `rebalances`, or one level below, such as `land/orders`.
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
        """Register the table in the catalog as an external table at its path.

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
                f"{self.label(name)}: the catalog has a different {table}, at {known}"
            )
        self._registered.add(name)

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
        if not self.tables.exists(name):
            place = self._place(self.path(name))
            files = self._files(place)
            present = files.listStatus(place) if files.exists(place) else []
            if {str(status.getPath().getName()) for status in present} <= {_LOG}:
                return False
            # Another run may have created the table since the first check.
            if not self.tables.exists(name):
                raise ReportedError(
                    f"{self.label(name)}: the directory contains files of something else. "
                    "Is that directory a lake of this pipeline?"
                )
        self._known.add(name)
        return True

    def _place(self, path: str) -> Any:  # noqa: ANN401 - a Java object.
        return jvm.packages(self.spark).org.apache.hadoop.fs.Path(path)

    def _files(self, place: Any) -> Any:  # noqa: ANN401 - Java objects.
        return place.getFileSystem(jvm.hadoop_configuration(self.spark))

    def _qualified(self, path: str) -> str:
        """Return the path as a URL with its file system, as the catalog stores paths."""
        place = self._place(path)
        return str(self._files(place).makeQualified(place).toString())

    def label(self, name: str) -> str:
        return self.tables.label(name)


def _storage_options(spark: SparkSession, root: str) -> dict[str, str]:
    """Return Hadoop's S3 settings under delta-rs's names; delta-rs takes settings that are missing
    here from the environment.
    """
    if not root.startswith("s3a://"):
        return {}
    prefix = "spark.hadoop.fs.s3a."
    conf = dict(spark.sparkContext.getConf().getAll())
    options = {
        name: conf[prefix + setting]
        for setting, name in _OF_S3A.items()
        if prefix + setting in conf
    }
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    if conf.get(f"{prefix}path.style.access") == "true":
        options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false"
    return options
