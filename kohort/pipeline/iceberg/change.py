"""A change of an Iceberg table of the history or the findings; implements `Change`.

The commit requires that the table still has the version that was read. Otherwise it fails as a
conflict, and nothing is changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

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

from kohort.pipeline.arrow import conformed, held_of, is_same
from kohort.pipeline.iceberg.catalogs import explained

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table import Transaction

    from kohort.insight.tables.columns import Table


class IcebergChange:
    def __init__(self, table: IcebergTable | None, label: str) -> None:
        """Begin a change of `table`, None if it does not exist, called `label`."""
        self.is_new = table is None
        self._table, self._label = table, label
        self._names = set() if table is None else {field.name for field in table.schema().fields}

    def fits(self, table: Table) -> bool:
        return self._names == set(table.names)

    @property
    def version(self) -> int:
        snapshot = None if self._table is None else self._table.current_snapshot()
        return -1 if snapshot is None else snapshot.snapshot_id

    def read(
        self,
        schema: pa.Schema,
        groups: Collection[tuple[str, str]] | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> pa.Table:
        return pa.concat_tables([schema.empty_table(), *self.parts(schema, groups, sequences)])

    def parts(
        self,
        schema: pa.Schema,
        groups: Collection[tuple[str, str]] | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> Iterator[pa.Table]:
        if self._table is None:
            return
        wanted: BooleanExpression = AlwaysTrue() if groups is None else of_groups(groups)
        if sequences is not None:
            first, last = sequences
            within = And(GreaterThanOrEqual("sequence", first), LessThanOrEqual("sequence", last))
            wanted = And(wanted, within)
        names = tuple(name for name in schema.names if name in self._names)
        with explained(self._label):
            scan = self._table.scan(row_filter=wanted, selected_fields=names)
            for batch in scan.to_arrow_batch_reader():
                yield conformed(pa.Table.from_batches([batch]), schema)

    def append(self, rows: pa.Table, key: Sequence[str]) -> None:
        del key  # The commit fails if another writer has added them since.
        assert self._table is not None, "the table must exist"
        with explained(self._label):
            self._table.append(rows)

    def replace(
        self,
        rows: Iterable[pa.Table],
        schema: pa.Schema,
        groups: Collection[tuple[str, str]] | None,
        table: Table | None = None,
    ) -> bool:
        groups = None if table is not None else groups
        held, rest = held_of(rows, schema)
        if rest is None and table is None and is_same(held, self.parts(schema, groups)):
            return False
        transaction = self.without(groups, None if table is None else schema)
        while True:
            with explained(self._label):
                if held.num_rows:
                    transaction.append(held)
                if rest is None:
                    transaction.commit_transaction()
                    return True
            held, rest = held_of(rest, schema)

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
