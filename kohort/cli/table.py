"""Columns of text, aligned; what peers have called themselves cannot break them."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from kohort.formats.text import shown

Cell: TypeAlias = str | int | None
"""A cell: None is shown as a dash. Numbers stand right."""

_GAP: Final = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Lines without spaces at their ends, the head first."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    is_number = [any(isinstance(row[place], int) for row in rows) for place in range(len(head))]
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
