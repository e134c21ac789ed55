"""The types of declared tables in Spark and in Arrow."""

from typing import Final

import pyarrow as pa
from pyspark.sql import types as spark

from kohort.insight.tables.columns import (
    BYTES,
    FLAG,
    MOMENT,
    SMALL,
    TEXT,
    WHOLE,
    ListOf,
    Struct,
    Table,
    Type,
)

_TYPES: Final[dict[str, tuple[spark.DataType, pa.DataType]]] = {
    BYTES: (spark.BinaryType(), pa.binary()),
    TEXT: (spark.StringType(), pa.string()),
    WHOLE: (spark.LongType(), pa.int64()),
    SMALL: (spark.IntegerType(), pa.int32()),
    FLAG: (spark.BooleanType(), pa.bool_()),
    MOMENT: (spark.TimestampType(), pa.timestamp("us", "UTC")),
}


_OF_SPARK: Final = {type(kind): arrow for kind, arrow in _TYPES.values()} | {
    spark.DateType: pa.date32()
}


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return a frame's columns for Arrow, all nullable. Spark's own conversion is not public."""
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
    """Return the columns for Spark; nullable, as stored data must not be rejected."""
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
