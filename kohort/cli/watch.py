"""``kohort watch``: why groups of any Kafka cluster rebalanced."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import sleep, time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.groups import describe_state
from kohort.cli.commands import run
from kohort.cli.errors import (
    CommandError,
    NotFoundError,
    RefusedCommandError,
    UnavailableError,
    UsageError,
)
from kohort.cli.groups.from_files import UNKNOWN_STATE
from kohort.cli.groups.history import local_clock, positive, why_lines
from kohort.cli.groups.summary import last_act
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.output import Progress, wrapped
from kohort.cli.watch_http import NotServed, add_http, serving
from kohort.cli.watch_rights import Right, how_to_grant, right_to_describe
from kohort.cli.watch_store import HISTORY_TOPIC, Store, stored
from kohort.formats.text import counted, shown
from kohort.groups.history.names import AVOIDED
from kohort.groups.history.sentence import record_sentence
from kohort.insight.output import add_timezone, announce
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.watch.core import left_out
from kohort.watch.core.left_out import LeftOut
from kohort.watch.follow import BUSY_POLL_S, POLL_S, Follower, History, read_history
from kohort.watch.log_files import LogFiles
from kohort.watch.poll_only import PollFollower
from kohort.watch.poller import DENIALS, listed
from kohort.watch.reader import TOPIC, Report

if TYPE_CHECKING:
    from kohort.watch.service import WatchService

Json: TypeAlias = dict[str, Any]

POLL_MIN_S: Final = 0.1
POLL_MAX_S: Final = 60.0

_EPILOG: Final = """\
Reads __consumer_offsets, where every Kafka broker keeps its groups, and asks for the partitions of
topics and the settings of groups. It joins no group that it watches, and writes nothing to the
cluster but --history topic. It needs READ on the topic __consumer_offsets, and DESCRIBE on other
topics for their names.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Explain the rebalances of groups on any Kafka cluster, as they happen or afterwards."
    )
    parser.epilog = _EPILOG
    parser.set_defaults(run=run, handler=_watch)
    parser.add_argument(
        "--once",
        action="store_true",
        help="print the history that the topic still contains, and exit",
    )
    parser.add_argument("--group", metavar="GROUP", help="only this group (all)")
    parser.add_argument(
        "--groups", type=_pattern, metavar="REGEX", help="only groups whose whole names match"
    )
    parser.add_argument(
        "--not-groups",
        type=_pattern,
        metavar="REGEX",
        help="no groups whose whole names match; without --group and --groups:"
        f" {left_out.DEFAULT.pattern}",
    )
    parser.add_argument(
        "--last",
        type=positive,
        default=1,
        metavar="N",
        help="with --once: number of rebalances of each group, the newest last (%(default)s)",
    )
    parser.add_argument(
        "--avoided", action="store_true", help="include rebalances that were avoided"
    )
    parser.add_argument(
        "--log",
        dest="logs",
        action="append",
        default=[],
        metavar="FILE",
        help="also read the log of a broker, as it is written; - is standard input; repeatable",
    )
    add_timezone(parser)
    parser.add_argument(
        "--poll",
        type=_seconds,
        default=POLL_S,
        metavar="SECONDS",
        help="how often to ask which groups are rebalancing, or 0 for never (%(default)s, and"
        f" {BUSY_POLL_S} while any is)",
    )
    parser.add_argument(
        "--history",
        metavar="DIRECTORY|topic[:NAME]",
        help="store the records of all rebalances, past ones included, as lines of JSON in this"
        f" directory, or in a topic of the cluster ({HISTORY_TOPIC} unless named); a later run"
        " continues where this one stopped",
    )
    add_http(parser)
    add_kafka(parser)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (seconds == 0 or POLL_MIN_S <= seconds <= POLL_MAX_S):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not 0 or a number of seconds from {POLL_MIN_S} to {POLL_MAX_S}"
        )
    return seconds


def _left_out(options: argparse.Namespace) -> LeftOut:
    only, besides = options.groups, options.not_groups
    if options.group is not None:
        only = re.compile(re.escape(options.group))
    if only is None and besides is None:
        besides = left_out.DEFAULT
    return LeftOut(only, besides)


def _watch(options: argparse.Namespace) -> None:
    if options.once and options.http is not None and options.http.is_given:
        raise UsageError("--once opens no port, so it cannot be combined with --http")
    with ExitStack() as stack:
        logs = stack.enter_context(_opened_logs(options))
        cluster = stack.enter_context(cluster_of(options))
        try:
            store = stack.enter_context(stored(options, cluster))
            if options.once:
                _print_past(cluster, options, store, logs)
            else:
                _read_or_poll(cluster, options, store, logs)
        except DecodeError as error:
            raise UnavailableError(f"{TOPIC} cannot be read: {error}") from error
        except RefusedError as error:
            raise _refusal(error, options.bootstrap_server) from error


def _opened_logs(options: argparse.Namespace) -> LogFiles:
    try:
        return LogFiles(options.logs, options.timezone)
    except OSError as error:
        raise UsageError(f"--log {error.filename}: {error.strerror}") from error


def _refusal(error: RefusedError, server: str) -> CommandError:
    if error.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NotFoundError(f"{server} has no topic {TOPIC}: no group has committed there yet")
    if error.error != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return RefusedCommandError(str(error))
    return RefusedCommandError(f"{error}. {how_to_grant(Right.READ_OFFSETS, server)}")


@contextmanager
def _progress() -> Iterator[Report]:
    progress = Progress()
    try:
        yield partial(progress, f"Reading {TOPIC}")
    finally:
        progress.end()


# With --once: past rebalances.


def _print_past(
    cluster: Cluster, options: argparse.Namespace, store: Store, logs: LogFiles
) -> None:
    with _progress() as report:
        history = read_history(cluster, options.group, report, _left_out(options), logs)
    for record in history.records:
        store.add(record)
    store.flush()
    refusals: list[RefusedError] = []
    by_group: dict[str, list[Json]] = {group: [] for group in sorted(history.since_ms)}
    for record in history.records:
        by_group[record["group"]].append(record)
    answers = [
        _answer(group, records, history.since_ms[group], options)
        | {"state": _state(cluster, group, refusals)}
        for group, records in by_group.items()
    ]
    if refusals:
        right = how_to_grant(right_to_describe(refusals[0].error), options.bootstrap_server)
        announce(f"{refusals[0]}, so that its present state is unknown. {right}")
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


def _state(cluster: Cluster, group: str, refusals: list[RefusedError]) -> str | None:
    """Return the present state of a group; None if the group does not exist. If the user may not
    describe it, add the error to `refusals`.
    """
    try:
        return describe_state(cluster, group)
    except RefusedError as error:
        if error.error not in DENIALS:
            raise
        refusals.append(error)
        return UNKNOWN_STATE


def _answer(group: str, records: list[Json], since_ms: int, options: argparse.Namespace) -> Json:
    """Return the history of a group in the form of GET /groups/{group}/rebalances."""
    avoided = sum(record["kind"] == AVOIDED for record in records)
    act = last_act(group, records)
    if not options.avoided:
        records = [record for record in records if record["kind"] != AVOIDED]
    return {
        "group": group,
        "at_ms": int(time() * 1000),
        "since_ms": since_ms,
        "waiting": None,
        "act": act,
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


# The rebalances, as they happen.


_HIDDEN: Final = frozenset(
    {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


def _read_or_poll(
    cluster: Cluster, options: argparse.Namespace, store: Store, logs: LogFiles
) -> None:
    """Follow groups by reading __consumer_offsets, or by polling if it cannot be read."""
    has_groups = False
    while True:
        try:
            follower = Follower(cluster, options.group, _left_out(options), logs, options.poll)
            _print_news(follower, cluster, options, store)
        except RefusedError as error:
            if error.error not in _HIDDEN:
                raise
            if error.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED or has_groups:
                right = how_to_grant(Right.READ_OFFSETS, options.bootstrap_server)
                announce(
                    f"{error}. Polling the groups instead, which shows the members that joined and"
                    f" left, but not how they left. {right}"
                )
                poll_s = options.poll or POLL_S
                polled = PollFollower(cluster, _left_out(options), logs, poll_s)
                _print_news(polled, cluster, options, store)
            if not _has_groups(cluster):
                _wait_for_group(cluster, options)
            has_groups = True
        sleep(POLL_S)


def _has_groups(cluster: Cluster) -> bool:
    return any(listed(cluster, broker) for broker in cluster.brokers())


def _wait_for_group(cluster: Cluster, options: argparse.Namespace) -> None:
    """Serve pages without groups until a group or __consumer_offsets is visible: the user may be
    allowed to see only one of the two.
    """
    with serving(options, PollFollower(cluster, ()), cluster) as service:
        service.go_live()
        announce(f"{options.bootstrap_server} has no topic {TOPIC} yet: the first group creates it")
        while _has_no_topic(cluster) and not _has_groups(cluster):
            sleep(POLL_S)


def _has_no_topic(cluster: Cluster) -> bool:
    error = cluster.metadata([TOPIC]).topics[0].error_code
    return error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _print_news(
    follower: Follower | PollFollower,
    cluster: Cluster,
    options: argparse.Namespace,
    store: Store,
) -> None:
    with serving(options, follower, cluster) as service:
        _follow(follower, service, options, store)


def _follow(
    follower: Follower | PollFollower,
    service: WatchService | NotServed,
    options: argparse.Namespace,
    store: Store,
) -> None:
    with _progress() as report:
        for record in follower.catch_up(report):
            service.add(store.add(record))
        store.flush()
    service.go_live()
    print(
        f"Watching {counted(follower.group_count, 'group')} of {options.bootstrap_server};"
        " Ctrl-C ends it.",
        file=sys.stderr,
    )
    trouble: str | None = None
    said: set[str] = set()
    for news in follower.follow():
        if follower.trouble != trouble:
            trouble = follower.trouble
            announce(trouble or "connected again")
        for text in _missing_rights(follower, options.bootstrap_server):
            if text not in said:
                said.add(text)
                announce(text)
        if news is None:
            service.publish()
            # Read no further before these records are stored.
            store.flush()
            continue
        record = store.add(news)
        service.add(record)
        _print_new(record, options)


def _missing_rights(follower: Follower | PollFollower, server: str) -> Iterator[str]:
    """Yield the missing permissions that hide groups from polls, and how to grant them."""
    for error in follower.denials:
        right = how_to_grant(right_to_describe(error), server)
        yield f"some groups cannot be described, so polls do not show their members. {right}"
    if follower.is_blind:
        right = how_to_grant(Right.DESCRIBE_GROUPS, server)
        yield f"polls show no groups: none exist, or you may not describe them. {right}"


def _print_new(record: Json, options: argparse.Namespace) -> None:
    if record["kind"] == AVOIDED and not options.avoided:
        return
    if options.json:
        print(json.dumps(record), flush=True)
    else:
        clock = local_clock(int(time() * 1000))
        text = f"Group {shown(record['group'])} {record_sentence(record, clock)}."
        print("\n".join(wrapped([text])), flush=True)
