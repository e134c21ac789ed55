"""One change of an Iceberg table of the history or of findings; see `Change`.

The commit asks for the version of the table that was read. It fails as a conflict if there is
another one now, and then nothing of the change is there.
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
"""Rows that are kept in memory before they are written."""


class IcebergChange:
    """See the module."""

    def __init__(self, table: IcebergTable | None, called: str) -> None:
        """Begin a change of `table`; None if the table does not exist yet. `called` is its name in
        messages.
        """
        self.is_new = table is None
        self._table, self._called = table, called
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
        with explained(self._called):
            rows = self._table.scan(row_filter=wanted, selected_fields=names).to_arrow()
        return conformed(rows, schema)

    def append(self, rows: pa.Table, key: Sequence[str]) -> None:
        del key  # The commit makes sure that no other writer has added them since.
        assert self._table is not None, "a table is made before it is changed"
        with explained(self._called):
            self._table.append(rows)

    def replacing(
        self, groups: Collection[tuple[str, str]] | None, table: Table | None = None
    ) -> IcebergReplacement:
        return IcebergReplacement(self, groups, table)

    def replace(
        self, rows: pa.Table, groups: Collection[tuple[str, str]] | None, table: Table | None
    ) -> bool:
        """Returns whether anything is different now."""
        assert self._table is not None, "a table is made before it is changed"
        groups = None if table is not None else groups
        there = self.read(rows.schema, groups)
        if table is None and is_same(rows, there):
            return False
        transaction = self.without(groups, None if table is None else rows.schema)
        with explained(self._called):
            if rows.num_rows:
                transaction.append(rows)
            transaction.commit_transaction()
        return True

    def without(
        self, groups: Collection[tuple[str, str]] | None, schema: pa.Schema | None
    ) -> Transaction:
        """A change by which the rows of these groups are gone; with `schema`, all rows are, and
        these are the columns. Files that are added to it are written at once.
        """
        assert self._table is not None, "a table is made before it is changed"
        every = groups is None or schema is not None
        # PyIceberg warns if there are no such rows.
        with (
            explained(self._called),
            warnings.catch_warnings(action="ignore", category=UserWarning),
        ):
            transaction = self._table.transaction()
            transaction.delete(AlwaysTrue() if every else of_groups(groups or ()))
            if schema is not None:
                with_columns_of(transaction, self._table, schema)
        return transaction

    @property
    def called(self) -> str:
        """The table in a sentence."""
        return self._called


class IcebergReplacement:
    """See `Replacement`. Rows are held until they are written; if they are many, in files of one
    commit that is still to come.
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
        with explained(self._change.called):
            self._transaction.commit_transaction()
        return True

    def _flush(self, schema: pa.Schema) -> None:
        rows = pa.concat_tables([schema.empty_table(), *self._held])
        self._held, self._held_rows = [], 0
        if self._transaction is None:
            columns = None if self._table is None else schema
            self._transaction = self._change.without(self._groups, columns)
        with explained(self._change.called):
            if rows.num_rows:
                self._transaction.append(rows)


def of_groups(groups: Collection[tuple[str, str]]) -> BooleanExpression:
    """The condition that a row is of one of these groups, each with its cluster."""
    names: dict[str, set[str]] = {}
    for cluster_id, group in groups:
        names.setdefault(cluster_id, set()).add(group)
    parts = [
        And(EqualTo("cluster_id", cluster_id), In("group", of)) for cluster_id, of in names.items()
    ]
    nothing: BooleanExpression = AlwaysFalse()
    return reduce(Or, parts, nothing)


def with_columns_of(transaction: Transaction, table: IcebergTable, schema: pa.Schema) -> None:
    """Gives the table these columns, and no others."""
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        update.union_by_name(schema)
        for field in table.schema().fields:
            if field.name not in schema.names:
                update.delete_column(field.name)


def is_same(rows: pa.Table, there: pa.Table) -> bool:
    """Whether both have the same rows, in whichever order."""
    if rows.num_rows != there.num_rows:
        return False
    if rows.equals(there):
        return True
    one, other = (sorted(map(repr, table.to_pylist())) for table in (rows, there))
    return one == other
