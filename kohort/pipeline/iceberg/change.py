"""A change of an Iceberg table of the history or the findings; implements `Change`.

The commit requires that the table still has the version that was read. Otherwise it fails as a
conflict, and nothing is changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
    Or,
)

from kohort.pipeline.arrow import conformed
from kohort.pipeline.iceberg.catalogs import explained

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table import Transaction

    from kohort.pipeline.schemas import Table


HELD_ROWS_MAX: Final = 200_000
"""Maximum number of rows held in memory before they are written."""


class IcebergChange:
    def __init__(self, table: IcebergTable | None, label: str) -> None:
        """Begin a change of `table`, None if it does not exist, called `label`."""
        self.is_new = table is None
        self._table, self._label = table, label
        self._names = set() if table is None else {field.name for field in table.schema().fields}

    def fits(self, table: Table) -> bool:
        return self._names == set(table.names)

    def read(
        self,
        schema: pa.Schema,
        groups: Collection[tuple[str, str]] | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> pa.Table:
        wanted: BooleanExpression = AlwaysTrue() if groups is None else of_groups(groups)
        if sequences is not None:
            first, last = sequences
            within = And(GreaterThanOrEqual("sequence", first), LessThanOrEqual("sequence", last))
            wanted = And(wanted, within)
        if self._table is None:
            return schema.empty_table()
        names = tuple(name for name in schema.names if name in self._names)
        with explained(self._label):
            rows = self._table.scan(row_filter=wanted, selected_fields=names).to_arrow()
        return conformed(rows, schema)

    def append(self, rows: pa.Table, key: Sequence[str]) -> None:
        del key  # The commit fails if another writer has added them since.
        assert self._table is not None, "the table must exist"
        with explained(self._label):
            self._table.append(rows)

    def replacing(
        self, groups: Collection[tuple[str, str]] | None, table: Table | None = None
    ) -> IcebergReplacement:
        return IcebergReplacement(self, groups, table)

    def replace(
        self, rows: pa.Table, groups: Collection[tuple[str, str]] | None, table: Table | None
    ) -> bool:
        """Return whether the table changed."""
        assert self._table is not None, "the table must exist"
        groups = None if table is not None else groups
        present = self.read(rows.schema, groups)
        if table is None and is_same(rows, present):
            return False
        transaction = self.without(groups, None if table is None else rows.schema)
        with explained(self._label):
            if rows.num_rows:
                transaction.append(rows)
            transaction.commit_transaction()
        return True

    def without(
        self, groups: Collection[tuple[str, str]] | None, schema: pa.Schema | None
    ) -> Transaction:
        """Return a transaction that deletes the rows of these groups; with `schema`, it deletes all
        rows and sets the columns. Files added to it are written immediately.
        """
        assert self._table is not None, "the table must exist"
        every = groups is None or schema is not None
        # PyIceberg warns if there are no such rows.
        with (
            explained(self._label),
            warnings.catch_warnings(action="ignore", category=UserWarning),
        ):
            transaction = self._table.transaction()
            transaction.delete(AlwaysTrue() if every else of_groups(groups or ()))
            if schema is not None:
                with_columns_of(transaction, self._table, schema)
        return transaction

    @property
    def label(self) -> str:
        """The table's name in messages."""
        return self._label


class IcebergReplacement:
    """Implements `Replacement`. Rows are held in memory until the commit; if there are too many,
    they are written to files of that commit.
    """

    def __init__(
        self,
        change: IcebergChange,
        groups: Collection[tuple[str, str]] | None,
        table: Table | None,
    ) -> None:
        self._change, self._groups, self._table = change, groups, table
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self._transaction: Transaction | None = None

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._held_rows += rows.num_rows
        if self._held_rows > HELD_ROWS_MAX:
            self._flush(rows.schema)

    def commit(self, schema: pa.Schema) -> bool:
        if self._transaction is None:
            rows = pa.concat_tables([schema.empty_table(), *self._held])
            return self._change.replace(rows, self._groups, self._table)
        self._flush(schema)
        with explained(self._change.label):
            self._transaction.commit_transaction()
        return True

    def _flush(self, schema: pa.Schema) -> None:
        rows = pa.concat_tables([schema.empty_table(), *self._held])
        self._held, self._held_rows = [], 0
        if self._transaction is None:
            columns = None if self._table is None else schema
            self._transaction = self._change.without(self._groups, columns)
        with explained(self._change.label):
            if rows.num_rows:
                self._transaction.append(rows)


def of_groups(groups: Collection[tuple[str, str]]) -> BooleanExpression:
    """Return the condition that a row belongs to one of these groups."""
    names: dict[str, set[str]] = {}
    for cluster_id, group in groups:
        names.setdefault(cluster_id, set()).add(group)
    parts = [
        And(EqualTo("cluster_id", cluster_id), In("group", group_names))
        for cluster_id, group_names in names.items()
    ]
    nothing: BooleanExpression = AlwaysFalse()
    return reduce(Or, parts, nothing)


def with_columns_of(transaction: Transaction, table: IcebergTable, schema: pa.Schema) -> None:
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        update.union_by_name(schema)
        for field in table.schema().fields:
            if field.name not in schema.names:
                update.delete_column(field.name)


def is_same(rows: pa.Table, present: pa.Table) -> bool:
    """Whether both have the same rows, in any order."""
    if rows.num_rows != present.num_rows:
        return False
    if rows.equals(present):
        return True
    sorted_rows, other = (sorted(map(repr, table.to_pylist())) for table in (rows, present))
    return sorted_rows == other
