"""Output of commands: tables, and the progress of long work."""

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from kohort.formats.text import shown

Cell: TypeAlias = str | int | None
"""None is shown as a dash; numbers are right-aligned."""

_GAP: Final = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Yield the lines of a table, the head first, without trailing spaces."""
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


def wrapped(lines: Iterable[str], width: int | None = None) -> Iterator[str]:
    """Break lines between words at the width of the terminal, and indent their continuations; leave
    them whole if standard output is not a terminal.
    """
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        if width is None or len(line) <= width:
            yield line
            continue
        indent = " " * (len(line) - len(line.lstrip()))
        yield from textwrap.wrap(
            line,
            max(width, WIDTH_MIN),
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


WIDTH_MIN: Final = 40

PROGRESS_S: Final = 0.2


class Progress:
    """Prints progress in one line, overwritten at most every `PROGRESS_S` seconds."""

    def __init__(self) -> None:
        self._is_wanted = sys.stderr.isatty()
        self._printed_s = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now_s = time.monotonic()
        if self._is_wanted and now_s - self._printed_s >= PROGRESS_S:
            self._printed_s = now_s
            print(f"\r\033[K{what}: {done:,} of {total:,}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_wanted:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
