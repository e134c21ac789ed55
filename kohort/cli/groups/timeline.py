"""``kohort groups timeline``: a rebalance drawn in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from kohort.cli.admin_http import Json
from kohort.cli.errors import UnavailableError
from kohort.cli.groups.drawing import ASCII, Line, Symbols, draw
from kohort.cli.groups.local_clock import local_clock
from kohort.cli.groups.options import add_http, count, history_of
from kohort.cli.groups.why import nothing_text
from kohort.cli.options import print_json
from kohort.formats.text import shown
from kohort.groups.history.record_text import record_sentence
from kohort.groups.history.waiting_text import waiting_lines

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_WITHOUT_TERMINAL: Final = 120
MEMBERS: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    add_http(parser)
    parser.add_argument(
        "--members",
        type=count,
        default=MEMBERS,
        metavar="N",
        help="so many have a line of their own, the slowest first (%(default)s)",
    )
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    if options.json:
        print_json(history_of(options))
        return
    console = _console()
    answer = history_of(options)
    symbols = Symbols() if console.encoding.lower().startswith("utf") else ASCII
    for line in lines(answer, width=console.width, members=options.members, symbols=symbols):
        _print(console, line)


def lines(answer: Json, *, width: int, members: int, symbols: Symbols) -> list[Line]:
    """What is printed, of what GET /groups/{group}/rebalances has answered."""
    clock_text = local_clock(answer["at_ms"])
    name = f"Group {shown(answer['group'])}"
    found: list[Line] = []
    if not answer["rebalances"]:
        found.append(Line.of(nothing_text(answer)))
    for record in answer["rebalances"]:
        if found:
            found.append(Line.of(""))
        found.append(Line.of(f"{name} {record_sentence(record, clock_text)}.", "bold"))
        found += draw(record, now_ms=answer["at_ms"], width=width, members=members, symbols=symbols)
    if answer["waiting"] is not None:
        found += [Line.of(text) for text in ("", *waiting_lines(answer, clock_text))]
    return found


def _console() -> Console:
    try:
        from rich.console import Console  # noqa: PLC0415 - only here is it needed.
    except ImportError as error:
        raise UnavailableError(
            "the timeline is drawn with rich, which is not installed: pip install rich "
            "(or take --json)"
        ) from error
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(
        highlight=False, soft_wrap=True, width=None if has_width else WIDTH_WITHOUT_TERMINAL
    )


def _print(console: Console, line: Line) -> None:
    from rich.text import Text  # noqa: PLC0415 - as above.

    # Not markup: a member may call itself "[red]".
    console.print(Text.assemble(*((span.text, span.style) for span in line.spans)))
