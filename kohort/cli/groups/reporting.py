"""Executes ``kohort groups report``: reads the history, computes advice, writes the page."""

import argparse
import re
from pathlib import Path
from typing import Final

from kohort.cli.admin_http import HTTP
from kohort.cli.errors import UnavailableError, UsageError
from kohort.cli.groups.advising import known_of, records_of, reporting_invalid_records
from kohort.cli.options import print_result
from kohort.formats.text import counted, listed, shown
from kohort.insight.advisor.computation import compute_advice
from kohort.insight.output import write_whole
from kohort.insight.report.contents import Contents
from kohort.insight.report.events import History
from kohort.insight.report.from_history import advice_rows, group_page
from kohort.insight.report.page import render

_NAME_CHARS_MAX: Final = 100


def report(options: argparse.Namespace) -> None:
    output = options.output or Path(file_name(options.group))
    if not output.absolute().parent.is_dir():
        raise UsageError(f"--output {output}: no such directory")
    known = known_of(options)
    records = records_of(options)
    with reporting_invalid_records(options):
        history = History(options.group, records)
        if not history.rebalances():
            print(
                f"Group {shown(options.group)} has not rebalanced, as far as its history goes "
                "back; no page was written."
            )
            return
        advice = compute_advice(options.group, history.events, known=known)
        page = group_page(history, advice_rows(advice))
    source = listed(options.files) or options.http or options.bootstrap_server or HTTP
    text = render(Contents([page]), source)
    try:
        write_whole(output, text)
    except OSError as error:
        raise UnavailableError(f"--output {output}: {error.strerror}") from error
    rebalances, left_out = len(history.rebalances()), len(records) - len(history.events)
    lines = [f"{output}: {counted(rebalances, 'rebalance')} of group {shown(options.group)}"]
    if left_out:
        lines.append(f"{counted(left_out, 'record')} left out: ongoing, or of another schema")
    data = {"page": str(output), "rebalances": rebalances, "left_out": left_out}
    print_result(options, data, lines)


def file_name(group: str) -> str:
    """A file name for the page, without characters that file systems or shells treat specially."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", group)[:_NAME_CHARS_MAX].lstrip(".")
    return f"{plain or 'group'}.html"
