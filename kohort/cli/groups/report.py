"""``kohort groups report``: why a group rebalanced and what to change, as one page of HTML."""

import argparse
from pathlib import Path
from typing import Final

from kohort.cli.groups.advise import add_history

DESCRIPTION: Final = (
    "Makes a page of one group's history: the causes that cost most, whom the others waited for, "
    "what to change and the lines to paste for it, then every rebalance in words, who owned what, "
    "and plots. One file, which needs no network and no script. The history comes from a Kohort "
    "broker's HTTP port, or from files, as with `kohort groups advise`. Takes seconds, and needs "
    "neither Spark nor Java; docs/report.md says how to read it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_history(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="the page (GROUP.html in this directory)",
    )
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    from kohort.cli.groups.reporting import ask as report  # noqa: PLC0415 - only here is it needed.

    report(options)
