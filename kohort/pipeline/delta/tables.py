"""Reads and writes the Delta tables of the history and the findings from any process, by delta-rs
without Spark.

Compaction is left to Spark: if two compactions of delta-rs 1.6 replace the same files at the same
time, both are committed, and the table has each row twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import TableNotFoundError
from pyarrow import dataset
from pyspark.sql.types import StructType

from kohort.pipeline.arrow import conformed
from kohort.pipeline.executors import SLICES, slice_of
from kohort.pipeline.lake import Change, Groups, by_cluster

FILE_BYTES: Final = 64 << 20
"""Size of a data file at which the next file is begun."""

SMALL_FILE_BYTES: Final = FILE_BYTES // 2
"""Files below this size are compacted."""

ROW_GROUP_ROWS: Final = 20_000
"""Number of rows in a row group, which is read or skipped as a whole."""

_CONFIGURATION: Final = {
    # Columns by which rows are selected. Delta's default is the first 32, which would cost a small
    # write more than its rows.
    "delta.dataSkippingStatsColumns": ("cluster_id", "group", "sequence", "started_at", "at"),
}
_WRITER: Final = WriterProperties(max_row_group_size=ROW_GROUP_ROWS, compression="SNAPPY")


@dataclass(frozen=True, slots=True)
class DeltaTables:
    """The tables under a root. May be pickled. Raises DeltaError, ArrowException and OSError."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings of an object store, as delta-rs names them."""

    @property
    def writers_max(self) -> int:
        return SLICES

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def label(self, name: str) -> str:
        return f"the table {name} of {self.root}"

    def exists(self, name: str) -> bool:
        return DeltaTable.is_deltatable(self.path(name), dict(self.options))

    def open(self, name: str, version: int | None = None) -> DeltaTable:
        return DeltaTable(self.path(name), version, dict(self.options))

    def small_file_count(self, name: str) -> int:
        sizes = self.open(name).get_add_actions()["size_bytes"].to_pylist()
        return sum(size < SMALL_FILE_BYTES for size in sizes)

    def make(self, name: str, schema: StructType, partition_by: Sequence[str] = ()) -> None:
        """Create an empty table, unless another run has just created it."""
        configuration: dict[str, str | None] = {
            key: ",".join(column for column in columns if column in schema.names)
            for key, columns in _CONFIGURATION.items()
            if "group" in schema.names
        }
        DeltaTable.create(
            self.path(name),
            Schema.from_json(schema.json()),
            mode="ignore",
            partition_by=list(partition_by),
            configuration=configuration,
            storage_options=dict(self.options),
        )

    def begin(self, name: str, version: int | None = None) -> "DeltaChange":
        """Begin a change that is based on the table's newest version, or on `version`."""
        try:
            return DeltaChange(self.open(name, version))
        except TableNotFoundError:
            return DeltaChange(None)


class DeltaChange(Change):
    """A change of a Delta table. Its commit fails as a whole if its rows collide with rows that
    another run has written since the version that was opened.
    """

    def __init__(self, table: DeltaTable | None) -> None:
        super().__init__(None if table is None else [one.name for one in table.schema().fields])
        self._table = table

    @property
    def version(self) -> int:
        return -1 if self._table is None else self._table.version()

    def parts(
        self,
        schema: pa.Schema,
        groups: Groups | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> Iterator[pa.Table]:
        if self._table is None:
            return
        wanted = None if groups is None else _of_groups(groups)
        if sequences is not None:
            first, last = sequences
            number = dataset.field("sequence")
            within = (number >= first) & (number <= last)
            wanted = within if wanted is None else wanted & within
        names = [name for name in schema.names if name in self._names]
        batches = self._table.to_pyarrow_dataset().to_batches(
            columns=names, filter=wanted, batch_readahead=2, fragment_readahead=2
        )
        for batch in batches:
            if batch.num_rows:
                yield conformed(pa.Table.from_batches([batch]), schema)

    def append(self, rows: pa.Table) -> None:
        assert self._table is not None, "the table must exist"
        write_deltalake(
            self._table,
            rows,
            mode="append",
            schema_mode="merge",
            writer_properties=_WRITER,
            commit_properties=CommitProperties(
                app_transactions=[
                    Transaction(app_id, self.version + 1) for app_id in sorted(_app_ids(rows))
                ]
            ),
        )

    def _replace(
        self,
        held: pa.Table,
        rest: Iterator[pa.Table] | None,
        schema: pa.Schema,
        groups: Groups | None,
        *,
        has_columns: bool,
    ) -> None:
        assert self._table is not None, "the table must exist"
        parts = chain([held], rest or ())
        batches = chain.from_iterable(part.to_batches() for part in parts)
        write_deltalake(
            self._table,
            pa.RecordBatchReader.from_batches(schema, batches),
            mode="overwrite",
            # Without a predicate, delta-rs does not detect that the replaced files have been
            # compacted meanwhile, and the compacted rows would remain.
            predicate="true" if groups is None else _sql_of_groups(groups),
            schema_mode=None if has_columns else "overwrite",
            target_file_size=FILE_BYTES,
            writer_properties=_WRITER,
        )


def _app_ids(rows: pa.Table) -> set[str]:
    """Return the Delta application ids for appending `rows`: one for each slice (`slice_of`) that
    their groups belong to. Delta rejects the second of two concurrent appends that share an id.
    """
    if "group" not in rows.column_names:
        return {"kohort"}
    groups = rows.group_by(["cluster_id", "group"]).aggregate([])
    return {
        f"kohort-{slice_of(cluster_id, group)}"
        for cluster_id, group in zip(
            groups["cluster_id"].to_pylist(), groups["group"].to_pylist(), strict=True
        )
    }


def _of_groups(groups: Groups) -> dataset.Expression:
    wanted = dataset.scalar(False)
    for cluster_id, names in by_cluster(groups).items():
        is_cluster = dataset.field("cluster_id") == cluster_id
        wanted = wanted | (is_cluster & dataset.field("group").isin(names))
    return wanted


def _sql_of_groups(groups: Groups) -> str:
    conditions = [
        f"(cluster_id = {_quoted(cluster_id)} AND `group` IN ({', '.join(map(_quoted, names))}))"
        for cluster_id, names in by_cluster(groups).items()
    ]
    return " OR ".join(conditions) or "false"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
