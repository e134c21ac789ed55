"""The tables of a lake, and the operations on them.

Each operation is idempotent, so that a job that was killed at any point can run again. Tables are
named by a path: ``rebalances``, ``land/orders``. `DeltaLake` and `IcebergLake` decide their format
and location.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kohort.insight.tables.columns import Table
from kohort.pipeline.arrow import held_of, is_same

Groups: TypeAlias = Collection[tuple[str, str]]
"""Pairs of cluster id and group name."""


def by_cluster(groups: Groups) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for cluster_id, group in sorted(groups):
        names.setdefault(cluster_id, []).append(group)
    return names


class Change:
    """A change to a history or findings table, based on one version of the table.

    Its methods raise exceptions of the format's library; `explained` converts these.
    """

    def __init__(self, names: Iterable[str] | None) -> None:
        """Begin a change. `names`: the table's columns; None if the table does not exist."""
        self.is_new: Final = names is None
        self._names = set(names or ())

    @property
    def version(self) -> int:
        raise NotImplementedError

    def fits(self, table: Table) -> bool:
        """Whether the table exists with exactly these columns."""
        return self._names == set(table.names)

    def read(
        self,
        schema: pa.Schema,
        groups: Groups | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Return the rows of these groups, or all rows, in these columns.

        `sequences`: the first and last sequence number wanted; rows outside may be missing.
        """
        return pa.concat_tables([schema.empty_table(), *self.parts(schema, groups, sequences)])

    def parts(
        self,
        schema: pa.Schema,
        groups: Groups | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows that `read` would return, in parts."""
        raise NotImplementedError

    def replace(
        self,
        rows: Iterable[pa.Table],
        schema: pa.Schema,
        groups: Groups | None,
        table: Table | None = None,
    ) -> bool:
        """Replace the rows of these groups, or all rows if None, in one commit; `rows` are sorted
        by group. Return False, without a commit, if these rows fit in memory and are unchanged.

        With `table`, a new definition, always commit, with its columns and only `rows`.
        """
        groups = None if table is not None else groups
        held, rest = held_of(rows, schema)
        if rest is None and table is None and is_same(held, self.parts(schema, groups)):
            return False
        self._replace(held, rest, schema, groups, has_columns=table is None)
        return True

    def _replace(
        self,
        held: pa.Table,
        rest: Iterator[pa.Table] | None,
        schema: pa.Schema,
        groups: Groups | None,
        *,
        has_columns: bool,
    ) -> None:
        """Replace the rows of these groups, or all rows if None, by `held` and then `rest`."""
        raise NotImplementedError

    def append(self, rows: pa.Table) -> None:
        """Add rows. The commit fails if another writer has added rows of the same groups since the
        version on which this change is based.
        """
        raise NotImplementedError


class Tables(Protocol):
    """A lake's tables for use in any process: can be pickled, and needs no Spark session."""

    @property
    def writers_max(self) -> int:
        """Maximum number of tasks that concurrently append rows of different groups to a table."""

    def begin(self, name: str, version: int | None = None) -> Change:
        """Begin a change to the newest version. With `version`, the change fails if it conflicts
        with a change made since that version.
        """

    def label(self, name: str) -> str: ...


class Lake(Protocol):
    """A lake. All methods raise ReportedError, whose message states the cause."""

    @property
    def spark(self) -> SparkSession: ...

    @property
    def tables(self) -> Tables: ...

    @property
    def root(self) -> str:
        """The lake's directory, which contains its checkpoints and possibly its tables."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str, offsets: tuple[int, int] | None = None) -> DataFrame:
        """Return the table as it is now.

        `offsets`: the first and last `offset` wanted; rows outside may be missing.

        Raises:
            ReportedError: the table does not exist; the message names the job that creates it.
        """

    def create(self, name: str, schema: StructType, partition_by: Sequence[str] = ()) -> str:
        """Create an empty table if it does not exist; return its permanent id.

        A new table is partitioned by the columns `partition_by`. An existing table gets missing
        columns, which are null in its rows.
        """

    def version(self, name: str) -> int:
        """Return a number that increases with every change of rows; 0 before the first change."""

    def append_once(self, frame: DataFrame, name: str, *, app_id: str, batch_id: int) -> None:
        """Append rows, unless `app_id` has appended a batch with this or a higher id before.

        `app_id` identifies a stream of batches, such as a checkpoint's. If batch ids started again
        under an old `app_id`, the batches would be ignored. New columns are added to the table.
        """

    def has_batch(self, name: str, app_id: str, batch_id: int) -> bool:
        """Whether `append_once` would do nothing; the table must exist."""

    def begin(self, name: str) -> Change:
        """Begin a change to a history or findings table."""

    def merge_new(self, frame: DataFrame, name: str, *, on: Sequence[str]) -> None:
        """Add the rows of `frame` whose key, the columns `on`, is not in the table.

        Of several rows with the same key in `frame`, one is added. Nulls in a key are equal to each
        other.
        """

    def forget(self, name: str, column: str, before: datetime) -> None:
        """Delete the rows whose `column` is earlier than `before`."""

    def compact(self, name: str) -> None:
        """Compact small files, unless another run changes them; the rows stay the same."""

    def compact_appended(self, name: str) -> None:
        """Compact small files if appends have left many; for Iceberg, do nothing, because the job
        `tidy` compacts its tables.
        """

    def vacuum(self, name: str, hours: int) -> None:
        """Delete files that have not belonged to the table for `hours`, which is at least 168."""

    def file_count(self, name: str) -> int:
        """Return the number of files that contain the table's rows."""

    def names(self) -> list[str]: ...

    def label(self, name: str) -> str: ...
