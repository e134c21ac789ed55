"""``kohort watch``: why groups of any Kafka cluster rebalanced."""

import argparse
import sys
from collections.abc import Iterator
from time import monotonic, time
from typing import Any, Final, TypeAlias

from kohort.admin.cluster import RefusedError
from kohort.admin.groups import describe_state
from kohort.cli.commands import run
from kohort.cli.errors import (
    CommandError,
    NotFoundError,
    RefusedCommandError,
    UnavailableError,
)
from kohort.cli.groups.history import local_clock, positive, why_lines
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.formats.text import counted
from kohort.groups.history.names import AVOIDED
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.watch.once import TOPIC, History, Progress, read_history

Json: TypeAlias = dict[str, Any]

_EPILOG: Final = """\
Reads __consumer_offsets, where every Kafka broker keeps its groups, and asks for the partitions of
topics and the settings of groups. It joins no group and writes nothing. It needs READ and DESCRIBE
on the topic __consumer_offsets, and DESCRIBE on other topics for their names.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "Explain the rebalances of groups on any Kafka cluster."
    parser.epilog = _EPILOG
    parser.set_defaults(run=run, handler=_watch)
    parser.add_argument(
        "--once",
        action="store_true",
        required=True,
        help="print what the topic still contains, and exit",
    )
    parser.add_argument("--group", metavar="GROUP", help="only this group (all)")
    parser.add_argument(
        "--last",
        type=positive,
        default=1,
        metavar="N",
        help="number of rebalances of each group, the newest last (%(default)s)",
    )
    parser.add_argument(
        "--avoided", action="store_true", help="include rebalances that were avoided"
    )
    add_kafka(parser)


def _watch(options: argparse.Namespace) -> None:
    report = _Bar() if sys.stderr.isatty() else _ignore
    with cluster_of(options) as cluster:
        try:
            history = read_history(cluster, options.group, report)
        except DecodeError as error:
            raise UnavailableError(f"{TOPIC} cannot be read: {error}") from error
        except RefusedError as error:
            raise _refusal(error, options.bootstrap_server) from error
        finally:
            if isinstance(report, _Bar):
                report.clear()
        answers = [
            _answer(group, history, options) | {"state": describe_state(cluster, group)}
            for group in sorted(history.since_ms)
        ]
    if options.group is not None and not answers:
        raise NotFoundError(
            f"{TOPIC} has no records of a group {options.group!r};"
            " `kohort groups list` lists all groups"
        )
    if options.json:
        print_json(answers if options.group is None else answers[0])
        return
    for line in _lines(answers, history):
        print(line)


def _refusal(error: RefusedError, server: str) -> CommandError:
    if error.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NotFoundError(f"{server} has no topic {TOPIC}: no group has committed there yet")
    if error.error != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return RefusedCommandError(str(error))
    return RefusedCommandError(
        f"{error}. Add a rule for the user of --command-config:\n"
        f"  kafka-acls.sh --bootstrap-server {server} --add --allow-principal User:NAME"
        f" --operation Read --topic {TOPIC}\n"
        f"or, on Kohort:\n  kohort acl add NAME read topic:{TOPIC}"
    )


def _answer(group: str, history: History, options: argparse.Namespace) -> Json:
    """Return the history of a group in the form of GET /groups/{group}/rebalances."""
    records = [record for record in history.records if record["group"] == group]
    avoided = sum(record["kind"] == AVOIDED for record in records)
    if not options.avoided:
        records = [record for record in records if record["kind"] != AVOIDED]
    return {
        "group": group,
        "at_ms": int(time() * 1000),
        "since_ms": history.since_ms[group],
        "waiting": None,
        "total_avoided": avoided,
        "rebalances": records[-options.last :],
    }


def _lines(answers: list[Json], history: History) -> Iterator[str]:
    for number, answer in enumerate(answers):
        if number:
            yield ""
        yield from why_lines(answer)
        since = local_clock(answer["at_ms"])(answer["since_ms"])
        yield f"{TOPIC} has the group's rebalances since {since}."
    if history.unread_count:
        yield ""
        yield f"{counted(history.unread_count, 'record')} could not be decoded"


def _ignore(progress: Progress) -> None:
    del progress


class _Bar:
    """Prints progress on a terminal, at most four times a second."""

    def __init__(self) -> None:
        self._next_s = monotonic() + 0.5

    def __call__(self, progress: Progress) -> None:
        now_s = monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + 0.25
            share = 100 * progress.read // max(progress.total, 1)
            print(f"\rReading __consumer_offsets: {share} %", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line."""
        print("\r\033[K", end="", file=sys.stderr, flush=True)
