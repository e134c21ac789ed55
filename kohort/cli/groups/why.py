"""``kohort groups why``: one sentence, and below it what it rests on."""

import argparse
from collections.abc import Iterator

from kohort.cli.admin_http import Json
from kohort.cli.groups.local_clock import local_clock
from kohort.cli.groups.options import add_http, history_of
from kohort.cli.options import print_json
from kohort.formats.text import counted, shown
from kohort.groups.history.record_text import record_evidence, record_sentence
from kohort.groups.history.waiting_text import waiting_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    add_http(parser)
    parser.add_argument(
        "--avoided", action="store_true", help="also rebalances that were not needed, and avoided"
    )
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    answer = history_of(options, kind=None if options.avoided else "rebalance")
    if options.json:
        print_json(answer)
        return
    for line in lines(answer):
        print(line)


def lines(answer: Json) -> Iterator[str]:
    """What is printed, of what GET /groups/{group}/rebalances has answered."""
    clock_text = local_clock(answer["at_ms"])
    name = f"Group {shown(answer['group'])}"
    if not answer["rebalances"]:
        yield nothing_text(answer)
    hangs = answer["waiting"] is not None
    for place, record in enumerate(answer["rebalances"], start=1):
        if place > 1:
            yield ""
        yield f"{name} {record_sentence(record, clock_text)}."
        if hangs and place == len(answer["rebalances"]):
            yield from waiting_lines(answer, clock_text)
        yield from (f"  {line}" for line in record_evidence(record, clock_text))
    if hangs and not answer["rebalances"]:
        yield from waiting_lines(answer, clock_text)
    if answer["state"] is None:
        yield ""
        yield "The group is gone since; this is what is left of its history."


def nothing_text(answer: Json) -> str:
    """The text for a group without records."""
    avoided = answer["total_avoided"]
    text = f"Group {shown(answer['group'])} has not rebalanced, as far as its history goes back"
    if avoided:
        text += f"; it avoided {counted(avoided, 'rebalance')} (--avoided tells of them)"
    return text + "."
