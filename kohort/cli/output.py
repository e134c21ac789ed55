"""Output of commands: tables, and the progress of long work."""

import sys
import time
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


PROGRESS_S: Final = 0.2


class Progress:
    """Prints at most one line every `PROGRESS_S` seconds, each over the previous one."""

    def __init__(self) -> None:
        self._is_wanted = sys.stderr.isatty()
        self._printed_s = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now_s = time.monotonic()
        if self._is_wanted and now_s - self._printed_s >= PROGRESS_S:
            self._printed_s = now_s
            print(f"\r\033[K{what}: {done:,} of {total:,}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the line."""
        if self._is_wanted:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
