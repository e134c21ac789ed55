"""Converts declared tables to Spark and Arrow schemas, and their rows to Arrow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark

from kohort.insight.tables import columns as declared
from kohort.insight.tables.columns import ListOf, Struct, Table, Type

MOMENT: Final = pa.timestamp("us", "UTC")
"""The timestamp type that Spark writes to files."""

HELD_ROWS_MAX: Final = 200_000
"""Maximum number of rows held in memory before they are written."""

_AS_GIVEN: Final = pa.timestamp("ms", "UTC")


_TYPES: Final[dict[str, tuple[spark.DataType, pa.DataType]]] = {
    declared.BYTES: (spark.BinaryType(), pa.binary()),
    declared.TEXT: (spark.StringType(), pa.string()),
    declared.WHOLE: (spark.LongType(), pa.int64()),
    declared.SMALL: (spark.IntegerType(), pa.int32()),
    declared.FLAG: (spark.BooleanType(), pa.bool_()),
    declared.MOMENT: (spark.TimestampType(), MOMENT),
}


_OF_SPARK: Final = {type(kind): arrow for kind, arrow in _TYPES.values()} | {
    spark.DateType: pa.date32()
}


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Convert a Spark schema to Arrow, all columns nullable; Spark's conversion is not public."""
    return pa.schema([(field.name, _arrow(field.dataType)) for field in schema])


def _arrow(kind: spark.DataType) -> pa.DataType:
    if isinstance(kind, spark.ArrayType):
        return pa.list_(_arrow(kind.elementType))
    return (
        pa.struct(arrow_schema(kind))
        if isinstance(kind, spark.StructType)
        else _OF_SPARK[type(kind)]
    )


def spark_schema(table: Table) -> spark.StructType:
    """Return a table's Spark schema. All columns are nullable: stored rows are never rejected."""
    return spark.StructType(
        [
            spark.StructField(
                column.name, _spark(column.type), metadata={"comment": column.meaning}
            )
            for column in table.columns
        ]
    )


def arrow_type(kind: Type) -> pa.DataType:
    if isinstance(kind, ListOf):
        return pa.list_(arrow_type(kind.of))
    if isinstance(kind, Struct):
        return pa.struct([(name, arrow_type(field)) for name, field in kind.fields])
    return _TYPES[kind][1]


def _spark(kind: Type) -> spark.DataType:
    if isinstance(kind, ListOf):
        return spark.ArrayType(_spark(kind.of))
    if isinstance(kind, Struct):
        return spark.StructType(
            [spark.StructField(name, _spark(field)) for name, field in kind.fields]
        )
    return _TYPES[kind][0]


def schema_of(table: Table, names: Sequence[str] | None = None) -> pa.Schema:
    types = {column.name: column.type for column in table.columns}
    return pa.schema([pa.field(name, arrow_type(types[name])) for name in names or table.names])


def from_columns(table: Table, columns: Sequence[Sequence[Any]]) -> pa.Table:
    schema = schema_of(table)
    arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def from_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Make a table of rows, which map column names to values; missing values are null."""
    schema = schema_of(table)
    # One conversion of all columns, in C++, takes a third of the time of one per column.
    given = pa.struct([field.with_type(_given(field.type)) for field in schema])
    columns = pa.array(rows, given).flatten()
    arrays = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


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
    """Return all rows as one table, and None. If there are more than HELD_ROWS_MAX rows, return the
    first parts, with slightly more rows than that, as a table, and the remaining parts.
    """
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
    """Whether both arguments have the same rows, in any order. Stops reading `present` when it has
    more rows than `rows`.
    """
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
    return pa.array(values, _given(kind)).cast(kind)


def _given(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type for the Python values of a column; times are integers in ms."""
    return _AS_GIVEN if kind == MOMENT else kind
