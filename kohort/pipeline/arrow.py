"""Converts rows of declared tables to Arrow and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kohort.insight.tables.columns import Table
from kohort.pipeline.types import arrow_type

MOMENT: Final = pa.timestamp("us", "UTC")
"""The timestamp type that Spark writes to files."""

HELD_ROWS_MAX: Final = 200_000
"""Maximum number of rows held in memory before they are written."""

_AS_GIVEN: Final = pa.timestamp("ms", "UTC")


def schema_of(table: Table, names: Sequence[str] | None = None) -> pa.Schema:
    types = {column.name: column.type for column in table.columns}
    return pa.schema([pa.field(name, arrow_type(types[name])) for name in names or table.names])


def from_columns(table: Table, columns: Sequence[Sequence[Any]]) -> pa.Table:
    """Return a table from the values of each column; times in ms."""
    schema = schema_of(table)
    arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def from_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return a table from rows by column name; missing values are null."""
    held = list(rows)
    return from_columns(table, [[row.get(name) for row in held] for name in table.names])


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns of `schema`; missing ones are null."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def held_of(
    parts: Iterable[pa.Table], schema: pa.Schema
) -> tuple[pa.Table, Iterator[pa.Table] | None]:
    """Return the first HELD_ROWS_MAX rows or a few more, and the rest; None if that is all."""
    rest = iter(parts)
    held = [schema.empty_table()]
    count = 0
    for part in rest:
        held.append(part)
        count += part.num_rows
        if count > HELD_ROWS_MAX:
            return pa.concat_tables(held), rest
    return pa.concat_tables(held), None


def is_same(rows: pa.Table, present: Iterable[pa.Table]) -> bool:
    """Whether both have the same rows, in any order. Stops reading if there are more."""
    found = [rows.schema.empty_table()]
    count = 0
    for part in present:
        found.append(part)
        count += part.num_rows
        if count > rows.num_rows:
            return False
    other = pa.concat_tables(found)
    if rows.num_rows != count or rows.equals(other):
        return bool(rows.num_rows == count)
    return sorted(map(repr, rows.to_pylist())) == sorted(map(repr, other.to_pylist()))


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Return the values as Python objects; times in ms."""
    if pa.types.is_timestamp(column.type):
        # Python's datetimes take ten times as long, and end with the year 9999.
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, _AS_GIVEN).cast(MOMENT) if kind == MOMENT else pa.array(values, kind)
