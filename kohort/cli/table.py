"""Aligned columns of text; control characters in names are escaped."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from kohort.formats.text import shown

Cell: TypeAlias = str | int | None
"""None is shown as a dash; numbers are right-aligned."""

_GAP: Final = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """The lines of a table, the head first, without trailing spaces."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    is_number = [any(isinstance(row[index], int) for row in rows) for index in range(len(head))]
    for row in [list(head), *texts]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ]
        yield _GAP.join(cells).rstrip()


def _text(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    return shown(str(cell))
