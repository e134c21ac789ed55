"""Declares tables: each column has a meaning, which becomes Delta's comment and the text in
docs/pipeline-tables.md.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

BYTES: Final = BinaryType()
TEXT: Final = StringType()
WHOLE: Final = LongType()
SMALL: Final = IntegerType()
FLAG: Final = BooleanType()
MOMENT: Final = TimestampType()
"""Wall-clock time in UTC; times from the history have milliseconds."""
TEXTS: Final = ArrayType(TEXT)
WHOLES: Final = ArrayType(WHOLE)
SMALLS: Final = ArrayType(SMALL)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: DataType
    meaning: str
    """The column's meaning and unit, and the meaning of null if it can be null."""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    meaning: str
    """The meaning of a row, and the job that writes it."""
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def schema(self) -> StructType:
        """The schema for Spark; nullable, as stored data must not be rejected."""
        return StructType(
            [
                StructField(column.name, column.type, metadata={"comment": column.meaning})
                for column in self.columns
            ]
        )

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])
