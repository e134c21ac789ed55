"""The work behind ``kohort groups report``: the records, the advice, the page."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

from kohort.cli.errors import UnavailableError, UsageError
from kohort.cli.groups.advising import known_of, records_of, told_of
from kohort.cli.options import print_json
from kohort.formats.text import counted, listed, shown
from kohort.insight.advisor.computation import compute_advice
from kohort.insight.report.contents import Contents
from kohort.insight.report.events import History
from kohort.insight.report.from_advice import advice_rows
from kohort.insight.report.from_history import group_page
from kohort.insight.report.page import render
from kohort.insight.whole_file import write_whole

_NAME_CHARS_MAX: Final = 100


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    output = options.output or Path(file_name(options.group))
    if not output.absolute().parent.is_dir():
        raise UsageError(f"--output {output}: there is no such directory")
    known = known_of(options)
    records = records_of(options)
    with told_of(options):
        history = History(options.group, records)
        if not history.rebalances():
            print(
                f"Group {shown(options.group)} has not rebalanced, as far as its history goes "
                "back; there is no page."
            )
            return
        advice = compute_advice(options.group, history.events, known=known)
        page = group_page(history, advice_rows(advice))
    source = listed(options.files) if options.files else options.http
    text = render(Contents([page]), source)
    try:
        write_whole(output, text)
    except OSError as error:
        raise UnavailableError(f"--output {output}: {error.strerror}") from error
    _say(options, output, len(history.rebalances()), len(records) - len(history.events))


def _say(options: argparse.Namespace, output: Path, rebalances: int, left_out: int) -> None:
    if options.json:
        print_json({"page": str(output), "rebalances": rebalances, "left_out": left_out})
        return
    print(f"{output}: {counted(rebalances, 'rebalance')} of group {shown(options.group)}")
    if left_out:
        print(f"{counted(left_out, 'record')} left out: running, or not of this schema")


def file_name(group: str) -> str:
    """A name for the page of a group, whatever the group is called."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", group)[:_NAME_CHARS_MAX].lstrip(".")
    return f"{plain or 'group'}.html"
