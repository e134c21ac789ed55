"""A change of an Iceberg table of the history or the findings.

The commit requires that the table still has the version that was read. Otherwise it fails as a
conflict and changes nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
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

from kohort.pipeline.arrow import conformed, held_of
from kohort.pipeline.iceberg.catalogs import explained
from kohort.pipeline.lake import Change, Groups, by_cluster

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table import Transaction


class IcebergChange(Change):
    def __init__(self, table: IcebergTable | None, label: str) -> None:
        """Begin a change of `table`, None if it does not exist; `label` names it in errors."""
        super().__init__(None if table is None else [one.name for one in table.schema().fields])
        self._table, self._label = table, label

    @property
    def version(self) -> int:
        snapshot = None if self._table is None else self._table.current_snapshot()
        return -1 if snapshot is None else snapshot.snapshot_id

    def parts(
        self,
        schema: pa.Schema,
        groups: Groups | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> Iterator[pa.Table]:
        if self._table is None:
            return
        wanted: BooleanExpression = AlwaysTrue() if groups is None else of_groups(groups)
        if sequences is not None:
            wanted = And(wanted, within("sequence", sequences))
        names = tuple(name for name in schema.names if name in self._names)
        with explained(self._label):
            scan = self._table.scan(row_filter=wanted, selected_fields=names)
            for batch in scan.to_arrow_batch_reader():
                yield conformed(pa.Table.from_batches([batch]), schema)

    def append(self, rows: pa.Table) -> None:
        assert self._table is not None, "the table must exist"
        with explained(self._label):
            self._table.append(rows)

    def _replace(
        self,
        held: pa.Table,
        rest: Iterator[pa.Table] | None,
        schema: pa.Schema,
        groups: Groups | None,
        *,
        has_columns: bool,
    ) -> None:
        transaction = self.without(groups, None if has_columns else schema)
        while True:
            with explained(self._label):
                if held.num_rows:
                    transaction.append(held)
                if rest is None:
                    transaction.commit_transaction()
                    return
            held, rest = held_of(rest, schema)

    def without(self, groups: Groups | None, schema: pa.Schema | None) -> Transaction:
        """Return a transaction that deletes the rows of these groups, or all rows if None; with
        `schema`, it also sets the columns. Rows appended to it are written to files immediately.
        """
        assert self._table is not None, "the table must exist"
        # PyIceberg warns if there are no such rows.
        with (
            explained(self._label),
            warnings.catch_warnings(action="ignore", category=UserWarning),
        ):
            transaction = self._table.transaction()
            transaction.delete(AlwaysTrue() if groups is None else of_groups(groups))
            if schema is not None:
                with transaction.update_schema(allow_incompatible_changes=True) as update:
                    update.union_by_name(schema)
                    for field in self._table.schema().fields:
                        if field.name not in schema.names:
                            update.delete_column(field.name)
        return transaction


def within(column: str, bounds: tuple[int, int]) -> BooleanExpression:
    """Return a filter for the first and last value of `bounds` and all values between them."""
    first, last = bounds
    return And(GreaterThanOrEqual(column, first), LessThanOrEqual(column, last))


def of_groups(groups: Groups) -> BooleanExpression:
    parts = [
        And(EqualTo("cluster_id", cluster_id), In("group", names))
        for cluster_id, names in by_cluster(groups).items()
    ]
    nothing: BooleanExpression = AlwaysFalse()
    return reduce(Or, parts, nothing)
