"""The tables of a lake, and the few ways in which the jobs change them.

Each way gives the same table however often it is repeated, so a job that was killed at any point
can simply run again. Tables are called by a path: ``rebalances``, ``land/orders``. What lies under
such a name, and in which format, is the business of `DeltaLake` and `IcebergLake`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kohort.pipeline.schemas import Table

__all__ = ["Change", "Lake", "Replacement"]


class Replacement(Protocol):
    """Rows of some groups, or of all, that take the place of others in one commit."""

    def add(self, rows: pa.Table) -> None:
        """Some of the rows; groups come in order, and the rows of one behind each other."""
        ...

    def commit(self, schema: pa.Schema) -> bool:
        """Returns whether anything is different now, as far as is known."""
        ...


class Change(Protocol):
    """A change of a table of the history or of findings: what is read decides what is written.

    Its methods raise what the format's own library does; for `explained`, with what
    `Lake.called` says.
    """

    @property
    def is_new(self) -> bool:
        """Whether the table is not there yet."""
        ...

    def fits(self, table: Table) -> bool:
        """Whether the table is there, with these columns and no others."""
        ...

    def read(
        self,
        schema: pa.Schema,
        groups: Collection[tuple[str, str]] | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> pa.Table:
        """The rows, of these groups or of all, in these columns.

        With `sequences`, rows whose number is not within may be missing.
        """
        ...

    def replacing(
        self, groups: Collection[tuple[str, str]] | None, table: Table | None = None
    ) -> Replacement:
        """Rows in the place of all rows of these groups, or of all rows without a word.

        With `table`, its columns become those of the table here, which is made if there is none.
        """
        ...

    def append(self, rows: pa.Table, key: Sequence[str]) -> None:
        """Add rows whose `key` the table does not have."""
        ...


class Lake(Protocol):
    """See the module. All methods raise ReportedError with the cause in plain words."""

    @property
    def spark(self) -> SparkSession:
        """The session by which tables are read and written."""
        ...

    @property
    def root(self) -> str:
        """A directory of the lake's own: of its checkpoints, if not of its tables."""
        ...

    def exists(self, name: str) -> bool:
        """Whether there is a table of that name, with rows or without."""
        ...

    def read(self, name: str) -> DataFrame:
        """The table as it is now.

        Raises:
            ReportedError: there is none; the text says which job would make it.
        """
        ...

    def create(self, name: str, schema: StructType, partition_by: Sequence[str] = ()) -> str:
        """Makes an empty table if there is none; returns the id that the table keeps for life.

        A table that is made is cut into partitions by the values of the columns `cut_by`.

        A table of an earlier version gets the columns that it lacks, with nothing in its rows.
        """
        ...

    def version(self, name: str) -> int:
        """A number that grows with every change of the rows; 0 while there never was one."""
        ...

    def append_once(self, frame: DataFrame, name: str, *, app_id: str, batch_id: int) -> None:
        """Adds rows; does nothing if `app_id` has added a batch of this or a higher id before.

        `app_id` is one for each stream of batches, that is for each checkpoint: ids that begin
        again under an old name would be taken for repetitions. New columns are added to the table.
        """
        ...

    def has_batch(self, name: str, app_id: str, batch_id: int) -> bool:
        """Whether `append_once` would do nothing; the table has to be there."""
        ...

    def begin(self, name: str) -> Change:
        """A change of a table of the history or of findings."""
        ...

    def merge_new(
        self, frame: DataFrame, name: str, *, on: Sequence[str], is_unique: bool = False
    ) -> None:
        """Adds the rows whose key, the columns `on`, the table does not have yet.

        Of rows with the same key in `frame` one is taken; to look for them is spared with
        `is_unique`, for frames that have none. Nulls in a key are equal to each other.
        """
        ...

    def overwrite(self, frame: DataFrame, name: str) -> None:
        """Replaces the table, schema and all; readers see the old one or the new one."""
        ...

    def forget(self, name: str, column: str, before: datetime) -> None:
        """Removes the rows whose `column` has an earlier moment."""
        ...

    def compact(self, name: str) -> None:
        """Puts small files together; the rows stay the same."""
        ...

    def vacuum(self, name: str, hours: int) -> None:
        """Removes files that have not belonged to the table for so many hours, 168 at least."""
        ...

    def file_count(self, name: str) -> int:
        """How many files the table's rows are in."""
        ...

    def names(self) -> list[str]:
        """The lake's tables, in the order of the alphabet."""
        ...

    def label(self, name: str) -> str:
        """The table, in a sentence."""
        ...
