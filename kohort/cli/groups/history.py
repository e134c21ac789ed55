"""``kohort groups why`` and ``timeline``: a group's last rebalances, from the history."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from kohort.admin.cluster import Cluster
from kohort.admin.groups import SHARE
from kohort.admin.history import group_history
from kohort.cli.admin_http import HTTP, Json, fetch
from kohort.cli.commands import Commands
from kohort.cli.errors import (
    NotFoundError,
    RefusedCommandError,
    StartingError,
    UnavailableError,
    UsageError,
)
from kohort.cli.groups.drawing import ASCII, Line, Symbols, draw
from kohort.cli.groups.from_files import add_from, history_from_files
from kohort.cli.groups.share import share_lines, share_path
from kohort.cli.groups.summary import last_act, summary_lines
from kohort.cli.options import (
    BOOTSTRAP_SERVER,
    add_command_config,
    add_common,
    bootstrap_server,
    cluster_of,
    print_json,
    print_result,
    security_of,
)
from kohort.cli.output import wrapped
from kohort.formats.text import counted, shown
from kohort.groups.history.evidence import record_evidence
from kohort.groups.history.names import ASSIGNED, AVOIDED, REBALANCE
from kohort.groups.history.sentence import PROBLEMS, record_sentence
from kohort.groups.history.waiting_text import waiting_lines
from kohort.groups.history.wording import ClockText
from kohort.protocol.errors import DecodeError

if TYPE_CHECKING:
    from rich.console import Console

COUNT_MAX: Final = 1_000
NO_HTTP: Final = "none"
"""Value of --http: read only the stored records."""
WIDTH_WITHOUT_TERMINAL: Final = 120
MEMBERS: Final = 20


def add_why(commands: Commands) -> None:
    parser = commands.add(
        "why", "why a group rebalanced; what holds up a share group, or one of its records", _why
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "topic", metavar="TOPIC", nargs="?", help="a topic that the share group reads"
    )
    parser.add_argument("partition", metavar="PARTITION", nargs="?", type=int)
    parser.add_argument(
        "offset", metavar="OFFSET", nargs="?", type=int, help="offset of one of its records"
    )
    add_history(parser)
    add_from(parser)
    parser.add_argument(
        "--avoided",
        action="store_true",
        help="include all rebalances that were avoided, not only one after the last rebalance",
    )


def add_timeline(commands: Commands) -> None:
    parser = commands.add("timeline", "who waited for whom in a rebalance, drawn", _timeline)
    parser.add_argument("group", metavar="GROUP")
    add_history(parser)
    add_from(parser)
    parser.add_argument(
        "--members",
        type=positive,
        default=MEMBERS,
        metavar="N",
        help="number of members to draw, the slowest first (%(default)s)",
    )


def add_history(
    parser: argparse.ArgumentParser,
    *,
    last: int = 1,
    last_help: str = "number of rebalances, the newest last (%(default)s)",
) -> None:
    """Add the options that say where the history is; `last` is the default of --last."""
    parser.add_argument(
        "--http",
        "--admin-url",
        metavar="URL",
        help=f"HTTP port of a Kohort broker, kohort.metrics.port ({HTTP}, or found through"
        " --bootstrap-server); none: read only the stored records",
    )
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=bootstrap_server(),
        metavar="HOST:PORT[,...]",
        help="Kafka port of a Kohort broker; if its HTTP port cannot be reached, only stored"
        " records are shown, not what an ongoing rebalance waits for (KOHORT_BOOTSTRAP_SERVER)",
    )
    # No --wait: a broker that is still starting has no history to show.
    parser.set_defaults(wait=0.0)
    add_command_config(parser)
    parser.add_argument("--last", type=positive, default=last, metavar="N", help=last_help)
    add_common(parser)


def positive(text: str) -> int:
    """Parse the number of rebalances. Raises argparse.ArgumentTypeError."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= value <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"a number from 1 to {COUNT_MAX}")
    return value


def history_of(
    options: argparse.Namespace, *, kind: str | None = REBALANCE, enough: int | None = None
) -> Json:
    """Return the history in the form of GET /groups/{group}/rebalances; `enough` is as in
    `group_history`. Raises CommandError.
    """
    if options.files:
        return history_from_files(options, kind)
    if options.http not in {None, NO_HTTP}:
        return _from_http(options, options.http, kind)
    if options.http == NO_HTTP:
        options.bootstrap_server = options.bootstrap_server or BOOTSTRAP_SERVER
    if options.bootstrap_server is not None:
        return _through_broker(options, kind, enough)
    try:
        # Try this port first: `kohort watch` also serves it, for clusters that store no history.
        return _from_http(options, HTTP, kind)
    except StartingError:
        raise
    except UnavailableError as error:
        options.bootstrap_server = BOOTSTRAP_SERVER
        try:
            return _through_broker(options, kind, enough)
        except UnavailableError:
            raise error from None


def _through_broker(options: argparse.Namespace, kind: str | None, enough: int | None) -> Json:
    """Return the history from the broker over HTTP, or from its topic. Raises CommandError."""
    from kohort.cli.broker_http import http_of  # noqa: PLC0415 - not needed with --http.

    with cluster_of(options) as cluster:
        url = None if options.http == NO_HTTP else http_of(cluster)
        if url is not None:
            # If the port is blocked, or lacks the TLS that the password needs, the history topic is
            # read instead.
            with suppress(UnavailableError, RefusedCommandError, UsageError):
                return _from_http(options, url, kind)
        return _stored_history(cluster, options, kind, enough)


def _from_http(options: argparse.Namespace, url: str, kind: str | None) -> Json:
    query = f"last={options.last}" + (f"&kind={kind}" if kind else "")
    path = f"/groups/{quote(options.group, safe='', errors='surrogateescape')}/rebalances?{query}"
    options.answered_by = url
    try:
        return fetch(url, path, options.timeout, security_of(options))
    except NotFoundError as error:
        raise _unknown_group(options.group) from error


def _stored_history(
    cluster: Cluster, options: argparse.Namespace, kind: str | None, enough: int | None
) -> Json:
    try:
        history = group_history(cluster, options.group, last=options.last, kind=kind, enough=enough)
    except DecodeError as error:
        raise UnavailableError(f"the history cannot be read: {error}") from error
    if history is None:
        raise NotFoundError(
            f"{options.bootstrap_server} has no rebalance history: either no group has rebalanced"
            " there yet, or it is Apache Kafka, whose groups `kohort watch` explains; --from reads"
            " its history, or the log of a Kafka broker"
        )
    if not history["rebalances"] and history["state"] is None:
        raise _unknown_group(options.group)
    return history


def _unknown_group(group: str) -> NotFoundError:
    return NotFoundError(
        f"there is no group {group!r}, and no history of one; `kohort groups list` lists all groups"
    )


def _why(options: argparse.Namespace) -> None:
    answer = _summarized(options)
    share = _share_partitions(options) if answer.get("type") == SHARE else None
    if share is not None:
        lines = [*share_lines(share)]
        if options.topic is None:
            lines = [*why_lines(answer), "", *lines]
            share = answer | share
        print_result(options, share, wrapped(lines))
        return
    if options.topic is not None and answer.get("type") != SHARE:
        raise UsageError(f"{options.group!r} is not a share group, so only GROUP can be given")
    wanted = answer["rebalances"]
    if not options.avoided:
        # The newest record is shown in any case: it may be what the user has just done.
        wanted = [record for record in wanted if _is_told(record) or record is wanted[-1]]
    answer["rebalances"] = wanted
    print_result(options, answer, wrapped(why_lines(answer)))


def _share_partitions(options: argparse.Namespace) -> Json | None:
    """Return the response of GET /groups/{group}/share; None if `kohort watch` serves the HTTP
    port: it has no such page.
    """
    query = {name: getattr(options, name) for name in ("topic", "partition", "offset")}
    path = share_path(options.group, **query)
    try:
        return fetch(options.answered_by, path, options.timeout, security_of(options))
    except NotFoundError:
        if options.topic is not None:
            raise
        return None


def _summarized(options: argparse.Namespace) -> Json:
    """The last `--last` rebalances, with the rebalances avoided between and after them, and the
    newest act: a series of related rebalances, such as a rolling restart. Raises CommandError.
    """
    from kohort.insight.analysis.group_acts import RECORDS  # noqa: PLC0415 - as for `last_act`.

    last = options.last
    # All records of files: standard input cannot be read again if these are too few.
    options.last = COUNT_MAX if options.files else max(last, RECORDS)
    answer = history_of(options, kind=None, enough=last)
    records: list[Json] = answer["rebalances"]
    is_full = len(records) >= options.last
    options.last = last
    rebalances = [record for record in records if record.get("kind") != AVOIDED]
    if is_full and len(rebalances) < last:
        # Records of avoided rebalances filled the response: request only rebalances.
        records = rebalances = history_of(options)["rebalances"]
    answer["act"] = last_act(options.group, records)
    answer.pop("acts", None)  # Only the HTTP port sends acts.
    first = rebalances[-last:][0]["sequence"] if rebalances else 0
    answer["rebalances"] = [record for record in records if record["sequence"] >= first]
    return answer


def _is_told(record: Json) -> bool:
    """Whether a record describes a rebalance, or a problem (`PROBLEMS`) that caused none."""
    if record.get("kind") != AVOIDED:
        return True
    kind = (record.get("trigger") or {}).get("kind")
    return kind in {problem.value for problem in PROBLEMS}


def why_lines(answer: Json) -> Iterator[str]:
    """The text of ``why`` for a response of GET /groups/{group}/rebalances."""
    clock_text = local_clock(answer["at_ms"])
    name = f"Group {shown(answer['group'])}"
    yield from summary_lines(answer["group"], answer.get("act"), clock_text)
    if not answer["rebalances"]:
        yield _nothing_text(answer)
    is_waiting = answer["waiting"] is not None
    for number, record in enumerate(answer["rebalances"], start=1):
        if number > 1:
            yield ""
        yield f"{name} {record_sentence(continued(record, answer), clock_text)}."
        yield from _as_of_lines(record, answer, clock_text)
        if is_waiting and number == len(answer["rebalances"]):
            yield from waiting_lines(answer, clock_text)
        yield from (f"  {line}" for line in record_evidence(record, clock_text))
    if is_waiting and not answer["rebalances"]:
        yield from waiting_lines(answer, clock_text)
    if answer["state"] is None:
        yield ""
        yield "The group no longer exists; this is the rest of its history."
    if answer.get("stored_at_ms") is not None:
        yield ""
        yield (
            f"From the stored records as of {clock_text(answer['stored_at_ms'])}; the broker's HTTP"
            " port also shows what a rebalance waits for now."
        )


def continued(record: Json, answer: Json) -> Json:
    """Return the record; if its rebalance still runs, extend its waiting time until now."""
    stored_ms = record.get("stored_at_ms")
    if stored_ms is None or not _still_runs(record, answer) or not record["waited_for"]["ms"]:
        return record
    waited = record["waited_for"]
    ms = waited["ms"] + max(answer["at_ms"] - stored_ms, 0)
    return record | {"waited_for": waited | {"ms": ms}}


def _still_runs(record: Json, answer: Json) -> bool:
    return record.get("outcome") == "running" and answer["state"] not in _SETTLED


_SETTLED: Final = frozenset({None, "Stable", "Empty", "Dead"})


def _as_of_lines(record: Json, answer: Json, clock_text: ClockText) -> Iterator[str]:
    """Yield a line with the time at which the record of an unfinished rebalance was stored."""
    stored_ms = record.get("stored_at_ms")
    if stored_ms is None or record.get("outcome") != "running":
        return
    if _still_runs(record, answer):
        yield (
            f"  as stored at {clock_text(stored_ms)}; the group is still {shown(answer['state'])},"
            " so the wait counts until now"
        )
    else:
        state = "does not exist any more"
        if answer["state"] is not None:
            state = f"is {shown(answer['state'])} by now"
        yield f"  as of {clock_text(stored_ms)}, when it was stored; the group {state}"


def _nothing_text(answer: Json) -> str:
    avoided = answer["total_avoided"]
    text = f"Group {shown(answer['group'])} has not rebalanced, as far as its history goes back"
    if avoided:
        text += f"; it avoided {counted(avoided, 'rebalance')} (see --avoided)"
    return text + "."


def local_clock(now_ms: int) -> ClockText:
    """Formats times as local time of day, with the date unless it is today."""

    def local(wall_ms: int) -> datetime:
        return datetime.fromtimestamp(wall_ms / 1_000).astimezone()

    today = local(now_ms).date()

    def text(wall_ms: int) -> str:
        try:
            at = local(wall_ms)
        except (ValueError, OverflowError, OSError):
            return f"at {wall_ms} ms"  # A record of a topic may have any timestamp.
        return f"{at:%H:%M:%S}" if at.date() == today else f"{at:%Y-%m-%d %H:%M:%S}"

    return text


def _timeline(options: argparse.Namespace) -> None:
    if options.json:
        print_json(history_of(options))
        return
    console = _console()
    answer = _summarized(options)
    answer["rebalances"] = [
        record for record in answer["rebalances"] if record.get("kind") != AVOIDED
    ]
    symbols = Symbols() if console.encoding.lower().startswith("utf") else ASCII
    for line in _timeline_lines(
        answer, width=console.width, members=options.members, symbols=symbols
    ):
        _print(console, line)


def _timeline_lines(answer: Json, *, width: int, members: int, symbols: Symbols) -> list[Line]:
    clock_text = local_clock(answer["at_ms"])
    name = f"Group {shown(answer['group'])}"
    lines: list[Line] = []
    summary = summary_lines(answer["group"], answer.get("act"), clock_text)
    lines += [Line.of(text, "bold") for text in wrapped(summary, width)]
    if not answer["rebalances"]:
        lines.append(Line.of(_nothing_text(answer)))
    for number, record in enumerate(answer["rebalances"]):
        if number:
            lines.append(Line.of(""))
        sentence = f"{name} {record_sentence(continued(record, answer), clock_text)}."
        lines += [Line.of(text, "bold") for text in wrapped([sentence], width)]
        lines += [Line.of(text) for text in _as_of_lines(record, answer, clock_text)]
        if record.get("kind") == ASSIGNED:
            # Share groups assign partitions without stopping members, so there is nothing to draw.
            lines += [Line.of(f"  {line}") for line in record_evidence(record, clock_text)]
            continue
        lines += draw(record, now_ms=answer["at_ms"], width=width, members=members, symbols=symbols)
    if answer["waiting"] is not None:
        waiting = wrapped(waiting_lines(answer, clock_text), width)
        lines += [Line.of(text) for text in ("", *waiting)]
    return lines


def _console() -> Console:
    try:
        from rich.console import Console  # noqa: PLC0415 - only this command needs it.
    except ImportError as error:
        raise UnavailableError(
            "the timeline is drawn with rich, which is not installed: pip install rich "
            "(or use --json)"
        ) from error
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(
        highlight=False, soft_wrap=True, width=None if has_width else WIDTH_WITHOUT_TERMINAL
    )


def _print(console: Console, line: Line) -> None:
    from rich.text import Text  # noqa: PLC0415 - as above.

    # Not as markup: a member id may be "[red]".
    console.print(Text.assemble(*((span.text, span.style) for span in line.spans)))
