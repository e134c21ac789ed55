"""A lake of Iceberg tables; implements `Lake`.

A snapshot's summary identifies the batch whose rows the snapshot appends. The table's properties
store the last batch of each stream, because snapshots expire.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pyiceberg.expressions import AlwaysTrue, LessThan
from pyiceberg.table import TableProperties
from pyiceberg.types import TimestampType, TimestamptzType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kohort.pipeline import jvm
from kohort.pipeline.arrow import arrow_schema
from kohort.pipeline.errors import TRIES, ConflictError
from kohort.pipeline.faults import explained as explained_of_spark
from kohort.pipeline.iceberg import upkeep
from kohort.pipeline.iceberg.catalogs import Tables, explained
from kohort.pipeline.iceberg.change import IcebergChange, within

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql.types import StructType

    from kohort.pipeline.catalog import Namespace

LAST_BATCH: Final = "kohort.last-batch."
"""Prefix of the table property with a stream's last batch; the stream's id follows."""

_OF: Final = "_of_"
"""Prefix of the columns by which Spark partitions files; these columns are only in file paths."""

_METRICS_OF: Final = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX

_MOMENTS: Final = "spark.sql.parquet.outputTimestampType"


class IcebergLake:
    def __init__(self, spark: SparkSession, root: str, namespace: Namespace | None = None) -> None:
        """Use the tables of a catalog's `namespace`, or of the directory `root` if it is None. The
        catalog is opened on first use.
        """
        self.spark: Final = spark
        self.root: Final = root.rstrip("/") or "/"
        self.tables: Final = Tables(self.root, namespace)

    def exists(self, name: str) -> bool:
        with explained(self.label(name)):
            return self.tables.find(name) is not None

    def read(self, name: str, offsets: tuple[int, int] | None = None) -> DataFrame:
        wanted = AlwaysTrue() if offsets is None else within("offset", offsets)
        with explained(self.label(name)), explained_of_spark(self.label(name)):
            table = self.tables.get(name)
            scan = table.scan(row_filter=wanted)
            nothing = self.spark.createDataFrame(table.schema().as_arrow().empty_table())
            files = list(scan.plan_files())
            if any(file.delete_files for file in files):
                # Other writers have marked rows as deleted; only PyIceberg applies such marks.
                return self.spark.createDataFrame(scan.to_arrow(), nothing.schema)
            if not files:
                return nothing
            paths = [_by_hadoop(file.file.file_path) for file in files]
            return self.spark.read.schema(nothing.schema).parquet(*paths)

    def create(self, name: str, schema: StructType, partition_by: Sequence[str] = ()) -> str:
        with explained(self.label(name)):
            columns = arrow_schema(schema)
            table = self.tables.find(name) or self.tables.make(name, columns, partition_by)
            if not set(columns.names) <= {field.name for field in table.schema().fields}:
                with table.update_schema() as update:
                    update.union_by_name(columns)
            return str(table.metadata.table_uuid)

    def version(self, name: str) -> int:
        with explained(self.label(name)):
            snapshot = self.tables.get(name).current_snapshot()
            return 0 if snapshot is None else int(snapshot.sequence_number or 0)

    def append_once(self, frame: DataFrame, name: str, *, app_id: str, batch_id: int) -> None:
        self.create(name, frame.schema)
        with explained(self.label(name)):
            table = self.tables.get(name)
            if _has(table, app_id, batch_id):
                return
            # A separate directory, because another run may write the same batch.
            place = f"{table.location()}/data/{app_id}-{batch_id}-{uuid.uuid4()}"
            partition_by = [field.name for field in table.spec().fields]
            files = self._write_files(frame, place, name, partition_by)
            for left in reversed(range(TRIES)):
                try:
                    _commit(table, files, LAST_BATCH + app_id, batch_id)
                except ConflictError:
                    if not left:
                        raise
                else:
                    return
                table = self.tables.get(name)
                if _has(table, app_id, batch_id):
                    return

    def has_batch(self, name: str, app_id: str, batch_id: int) -> bool:
        with explained(self.label(name)):
            return _has(self.tables.get(name), app_id, batch_id)

    def begin(self, name: str) -> IcebergChange:
        return self.tables.begin(name)

    def merge_new(self, frame: DataFrame, name: str, *, on: Sequence[str]) -> None:
        self.create(name, frame.schema)
        rows = _rows(frame.dropDuplicates(list(on)))
        change = self.begin(name)
        key = change.read(rows.select(list(on)).schema)
        known = {tuple(row.values()) for row in key.to_pylist()}
        is_new_row = [tuple(row.values()) not in known for row in rows.select(list(on)).to_pylist()]
        if any(is_new_row):
            change.append(rows.filter(is_new_row))

    def forget(self, name: str, column: str, before: datetime) -> None:
        # PyIceberg warns if there are no such rows.
        with (
            explained(self.label(name)),
            warnings.catch_warnings(action="ignore", category=UserWarning),
        ):
            self.tables.get(name).delete(LessThan(column, before.isoformat()))

    def compact(self, name: str) -> None:
        with explained(self.label(name)):
            upkeep.compact(lambda: self.tables.get(name))

    def compact_appended(self, name: str) -> None:
        pass

    def vacuum(self, name: str, hours: int) -> None:
        with explained(self.label(name)):
            upkeep.expire(lambda: self.tables.get(name), hours)

    def file_count(self, name: str) -> int:
        with explained(self.label(name)):
            return sum(1 for _ in self.tables.get(name).scan().plan_files())

    def names(self) -> list[str]:
        with explained(f"the lake {self.tables.place}"):
            return self.tables.names()

    def label(self, name: str) -> str:
        return self.tables.label(name)

    def _write_files(
        self, frame: DataFrame, place: str, name: str, partition_by: Sequence[str]
    ) -> list[str]:
        """Write the rows, with all columns, to files per partition; return the files' paths."""
        path = _by_hadoop(place)
        # Iceberg's timestamps have microseconds; Spark's default format is INT96.
        conf = frame.sparkSession.conf
        before = conf.get(_MOMENTS) or "INT96"
        conf.set(_MOMENTS, "TIMESTAMP_MICROS")
        try:
            with explained_of_spark(self.label(name)):
                for column in partition_by:
                    frame = frame.withColumn(f"{_OF}{column}", f.col(column))
                writer = frame.write.partitionBy(*(_OF + name for name in partition_by))
                writer.parquet(path)
        finally:
            conf.set(_MOMENTS, before)
        return [f"{place}{name}" for name in sorted(self._files_below(path))]

    def _files_below(self, path: str) -> list[str]:
        """Return the relative paths of the Parquet files in a directory and its subdirectories."""
        directory = jvm.packages(self.spark).org.apache.hadoop.fs.Path(path)
        files = directory.getFileSystem(jvm.hadoop_configuration(self.spark))
        root = str(files.makeQualified(directory).toUri().getPath())
        listed = files.listFiles(directory, True)
        paths = []
        while listed.hasNext():
            path_below = str(listed.next().getPath().toUri().getPath())
            if path_below.endswith(".parquet"):
                paths.append(path_below.removeprefix(root))
        return paths


def _has(table: Table, app_id: str, batch_id: int) -> bool:
    last = table.properties.get(LAST_BATCH + app_id)
    return last is not None and int(last) >= batch_id


def _commit(table: Table, files: Sequence[str], key: str, batch_id: int) -> None:
    """Add the files and store the batch id in one commit."""
    with explained("the commit"):
        try:
            _add(table, files, {key: str(batch_id)}, {})
        except OverflowError:
            # PyIceberg converts the bounds of columns to Python datetimes, which fails after the
            # year 9999: store no bounds for this table's timestamps from now on.
            moments = [
                field.name
                for field in table.schema().fields
                if isinstance(field.field_type, TimestampType | TimestamptzType)
            ]
            counts_alone = {f"{_METRICS_OF}.{name}": "counts" for name in moments}
            _add(table, files, {key: str(batch_id)}, counts_alone)


def _add(
    table: Table, files: Sequence[str], batch: dict[str, str], properties: dict[str, str]
) -> None:
    with table.transaction() as transaction:
        if properties:
            transaction.set_properties(properties)
        if files:
            # The files are new; searching the table for them would take time proportional to its
            # size.
            transaction.add_files(
                list(files), snapshot_properties=batch, check_duplicate_files=False
            )
        transaction.set_properties(batch)


def _rows(frame: DataFrame) -> pa.Table:
    return frame.toArrow().cast(arrow_schema(frame.schema))


def _by_hadoop(path: str) -> str:
    """Return the path with the URL scheme that Spark uses."""
    return path.replace("s3://", "s3a://", 1) if path.startswith("s3://") else path
