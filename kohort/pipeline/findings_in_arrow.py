"""Computes the findings of many groups; input and output are Arrow tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa

from kohort.insight.analysis.finder import Rows, Thresholds, compute_findings
from kohort.insight.analysis.rows import (
    Avoided,
    Group,
    GroupHistory,
    Member,
    Rebalance,
    Running,
)
from kohort.insight.tables.columns import Table
from kohort.insight.tables.findings import FINDINGS
from kohort.insight.tables.history import AVOIDED, MEMBERS, REBALANCES, RUNNING
from kohort.pipeline.arrow import from_columns, schema_of, values_of

_ROWS: Final[dict[str, Any]] = {
    REBALANCES.name: Rebalance,
    MEMBERS.name: Member,
    AVOIDED.name: Avoided,
    RUNNING.name: Running,
}
"""Row classes by table of the history; `GroupHistory` has an attribute with each table's name."""

READ: Final = {
    table.name: schema_of(table, ["cluster_id", "group", *_ROWS[table.name]._fields])
    for table in (REBALANCES, MEMBERS, AVOIDED, RUNNING)
}
"""The columns to read from each table of the history."""

SCHEMAS: Final = {table.name: schema_of(table) for table in FINDINGS}

COMPUTED: Final = pa.schema([("table", pa.string()), ("number", pa.int64()), ("rows", pa.binary())])
COMPUTED_DDL: Final = "table string, number bigint, rows binary"
"""Columns of a DataFrame with several tables: each of its rows has a table's name and some of the
table's rows in Arrow's format."""

_PACKED_ROWS: Final = 20_000


def packed(tables: Mapping[str, pa.Table], number: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield batches with the schema COMPUTED, each with up to `_PACKED_ROWS` rows of one table."""
    for name, rows in tables.items():
        for at in range(0, max(rows.num_rows, 1), _PACKED_ROWS):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows.slice(at, _PACKED_ROWS))
            row = ([name], [number], [sink.getvalue().to_pybytes()])
            yield pa.record_batch(list(map(pa.array, row)), schema=COMPUTED)


def tables_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables that `packed` serialized, with their names; a long one in several parts."""
    for batch in batches:
        for name, rows in zip(batch["table"].to_pylist(), batch["rows"], strict=True):
            with pa.ipc.open_stream(rows.as_buffer()) as reader:
                yield name, reader.read_all()


def histories(tables: Mapping[str, pa.Table]) -> Iterator[GroupHistory]:
    """Yield the groups sorted by name, from tables with the columns of READ."""
    groups: dict[Group, GroupHistory] = {}
    for name, row in _ROWS.items():
        for group, values in _rows(tables[name], row):
            history = groups.setdefault(group, GroupHistory(*group))
            getattr(history, name).append(values)
    for group in sorted(groups):
        groups[group].sort()
        yield groups[group]


def members_in(rows: pa.Table, first: int, last: int) -> list[Member]:
    """Return the members of rebalances in this range of sequence numbers, in order."""
    members = (member for _, member in _rows(rows, Member) if first <= member.sequence <= last)
    return sorted(members, key=lambda row: (row.sequence, row.ordinal))


def tables_of(histories: Iterable[GroupHistory], limits: Thresholds) -> dict[str, pa.Table]:
    """Compute the groups' findings; return the tables of FINDINGS by name, rows in group order."""
    rows_by_table: dict[str, list[tuple[GroupHistory, Rows]]] = {
        table.name: [] for table in FINDINGS
    }
    for history in histories:
        for name, rows in compute_findings(history, limits).items():
            rows_by_table[name].append((history, rows))
    return {table.name: as_arrow(table, rows_by_table[table.name]) for table in FINDINGS}


def as_arrow(table: Table, group_rows: Sequence[tuple[GroupHistory, Rows]]) -> pa.Table:
    """Return the rows of groups, with the groups' names, in the columns of the table.

    Converts all groups at once, which is faster than group by group.
    """
    columns = list(zip(*(row for _, rows in group_rows for row in rows), strict=True))
    if not columns:
        return SCHEMAS[table.name].empty_table()
    clusters = [history.cluster_id for history, rows in group_rows for _ in rows]
    groups = [history.group for history, rows in group_rows for _ in rows]
    return from_columns(table, [clusters, groups, *columns])


_Row = TypeVar("_Row", Rebalance, Member, Avoided, Running)


def _rows(table: pa.Table, row: type[_Row]) -> Iterator[tuple[Group, _Row]]:
    if not table.num_rows:
        return
    groups = zip(values_of(table["cluster_id"]), values_of(table["group"]), strict=True)
    values = zip(*(values_of(table[name]) for name in row._fields), strict=True)
    for group, values_of_row in zip(groups, values, strict=True):
        yield group, row._make(values_of_row)
