"""How tables are declared: columns with a meaning each, from which Delta gets its comments and
docs/pipeline-tables.md its text.
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
"""Wall time in UTC, exact to the millisecond where it comes from the history."""
TEXTS: Final = ArrayType(TEXT)
WHOLES: Final = ArrayType(WHOLE)
SMALLS: Final = ArrayType(SMALL)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: DataType
    meaning: str
    """The column's meaning with its unit, and what null means where it can be null."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the lake."""

    name: str
    meaning: str
    """What one row is, and what makes it."""
    key: tuple[str, ...]
    """Columns that tell its rows apart."""
    columns: tuple[Column, ...]

    @property
    def schema(self) -> StructType:
        """The schema for Spark. Everything is nullable: a lake does not refuse what is already
        written.
        """
        return StructType(
            [
                StructField(column.name, column.type, metadata={"comment": column.meaning})
                for column in self.columns
            ]
        )

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]


def struct(**fields: DataType) -> StructType:
    """A struct of fields that may all be null."""
    return StructType([StructField(name, kind) for name, kind in fields.items()])
