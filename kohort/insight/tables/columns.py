"""Declares tables: each column has a meaning, which becomes Delta's comment and the text in
docs/pipeline-tables.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, get_type_hints

Type: TypeAlias = "str | ListOf | Struct"
"""The name of a type in SQL, or a compound type."""


@dataclass(frozen=True, slots=True)
class ListOf:
    of: Type


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[tuple[str, Type], ...]


BYTES: Final = "binary"
TEXT: Final = "string"
WHOLE: Final = "bigint"
SMALL: Final = "int"
FLAG: Final = "boolean"
MOMENT: Final = "timestamp"
"""Wall-clock time in UTC; times from the history have milliseconds."""
TEXTS: Final = ListOf(TEXT)
WHOLES: Final = ListOf(WHOLE)
SMALLS: Final = ListOf(SMALL)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type
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
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def struct(**fields: Type) -> Struct:
    return Struct(tuple(fields.items()))


def columns_of(row: type) -> tuple[Column, ...]:
    """Return the columns that a class declares by ``Annotated[type in Python, type, meaning]``."""
    hints = get_type_hints(row, include_extras=True)
    return tuple([Column(name, *hint.__metadata__) for name, hint in hints.items()])
