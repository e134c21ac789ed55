"""Rows of declared tables as Arrow has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import TimestampType

from kohort.pipeline.schemas import Table

MOMENT: Final = pa.timestamp("us", "UTC")
"""The form in which Spark writes moments into files."""

_AS_GIVEN: Final = pa.timestamp("ms", "UTC")


def schema_of(table: Table, names: Sequence[str] | None = None) -> pa.Schema:
    """The columns of a table, or those of these names."""
    types = {column.name: column.type for column in table.columns}
    return pa.schema(
        [
            pa.field(
                name,
                MOMENT
                if isinstance(types[name], TimestampType)
                else to_arrow_type(types[name], timezone="UTC"),
            )
            for name in names or table.names
        ]
    )


def from_columns(table: Table, columns: Sequence[Sequence[Any]]) -> pa.Table:
    """The rows of which the values of each column are given; moments in ms."""
    schema = schema_of(table)
    arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def from_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The rows, given by the names of columns; None where one is missing."""
    held = list(rows)
    return from_columns(table, [[row.get(name) for row in held] for name in table.names])


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the columns of `schema`; null where the table lacks one."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """What Python has for the values; moments in ms."""
    if pa.types.is_timestamp(column.type):
        # Python's own datetimes take ten times as long, and end with the year 9999.
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, _AS_GIVEN).cast(MOMENT) if kind == MOMENT else pa.array(values, kind)
