"""Which settings would have avoided rebalances: `kohort pipeline advise`.

Replays each group's history, from the lake's tables or from a file, through the coordinator's own
rules under a grid of settings. Results go to the table `advice`, to the topic `__rebalance_advice`,
and, in words, to standard output.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from pyspark.sql import DataFrame

from kohort.insight.advisor.setting import known_settings
from kohort.insight.advisor.tasks import Key
from kohort.insight.advisor.text import nothing_better
from kohort.insight.console import announce
from kohort.insight.counting import counted
from kohort.insight.errors import ReportedError, UsageError
from kohort.pipeline import options as common
from kohort.pipeline.advising import FAILED_TOLD, Advising, Events, in_lake, in_lines, in_parts
from kohort.pipeline.arrow import schema_of, values_of
from kohort.pipeline.faults import explained
from kohort.pipeline.java import QUICK
from kohort.pipeline.kafka import Kafka
from kohort.pipeline.lake import Lake
from kohort.pipeline.progress import pulse
from kohort.pipeline.rebalances import files
from kohort.pipeline.rebalances.conflicts import again_on_conflict
from kohort.pipeline.schemas.advice import ADVICE
from kohort.pipeline.transformations import advice as frames
from kohort.pipeline.transformations.common import GROUP

NAME: Final = "kohort-advise"
TOPIC: Final = "__rebalance_advice"
SHOWN: Final = 20
"""Groups on the terminal: those that stood still for longest."""
SCHEMA: Final = schema_of(ADVICE)

Row = dict[str, Any]
"""A row of the table, by the names of its columns."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this job."""
    parser.add_argument(
        "--group", action="append", default=[], metavar="GROUP", help="only this one; repeatable"
    )
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help="a history as lines of JSON, or the log of a stock Kafka broker, instead of the "
        "lake's tables; .gz is unpacked, - is standard input; repeatable, oldest first",
    )
    parser.add_argument(
        "--timezone",
        type=_zone,
        default=UTC,
        metavar="NAME",
        help="of the clock of the broker whose log it is, where the log does not say (UTC)",
    )
    parser.add_argument(
        "--cluster-id",
        default="",
        metavar="ID",
        help="of the cluster that the file is from; with tables: only groups of this one",
    )
    parser.add_argument(
        "--days",
        type=common.positive,
        default=35,
        help="how far back from a group's newest event (%(default)s)",
    )
    parser.add_argument(
        "--known",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what the groups were run under, where the history does not say: session_timeout_ms, "
        "heartbeat_interval_ms, rebalance_timeout_ms, initial_rebalance_delay_ms",
    )
    parser.add_argument(
        "--topic",
        metavar="NAME",
        help=f'where advice is sent ({TOPIC}; with --from nowhere); "" for nowhere',
    )
    common.add_lake(parser)
    common.add_kafka(parser)
    common.add_spark(parser)


def run(options: argparse.Namespace) -> int:
    """The whole job. Raises ReportedError."""
    known = parse_known(options.known)
    files.check(options.files)
    topic = options.topic if options.topic is not None else "" if options.files else TOPIC
    kafka = common.kafka_of(options)
    if topic:
        kafka.check_reachable()
    spark = common.session_of(options, NAME, java_options=QUICK)
    lake = common.lake_of(options, spark)
    if options.files:
        events = from_files(options)
    else:
        events = in_lake(lake, cluster_id=options.cluster_id, groups=options.group)
    rows = advise(lake, events, days=options.days, known=known)
    if topic:
        publish(spark.createDataFrame(rows, ADVICE.schema), kafka, topic)
    show(rows)
    return 0


def parse_known(given: Iterable[str]) -> dict[str, Any]:
    """What `--known NAME=VALUE` means. Raises UsageError."""
    try:
        return known_settings(given)
    except ValueError as error:
        raise UsageError(f"--known {error}") from error


def from_files(options: argparse.Namespace) -> Iterator[Events]:
    """The events of files; lines that are none are counted and left out."""
    found: dict[Key, list[str]] = {}
    bad = count = 0
    for piece in files.pieces(options.files, options.timezone):
        lines = [line for _, line in piece.lines]
        count += len(lines)
        some, none = in_lines(options.cluster_id, lines)
        bad += none
        for key, texts in some.items():
            if not options.group or key[1] in options.group:
                found.setdefault(key, []).extend(texts)
    if not count:
        raise UsageError("nothing is in the files of --from")
    if bad:
        announce(f"left out: {counted(bad, 'line')} without an event of a history")
    yield from in_parts(found)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"no time zone is called {name!r}") from error


def advise(lake: Lake, events: Iterable[Events], *, days: int, known: dict[str, Any]) -> pa.Table:
    """Work it out and write the table; returns its rows of these groups.

    Raises:
        ReportedError: there is no group with a rebalance.
    """
    begun_s = time.monotonic()
    advising = Advising(lake.spark, days=days, known=known, report=announce)
    with pulse(lake.spark):
        rows = pa.concat_tables([SCHEMA.empty_table(), *map(advising.rows, events)])
    if advising.failed > FAILED_TOLD:
        announce(f"{advising.failed - FAILED_TOLD:,} more groups have no advice")
    if not advising.groups:
        raise ReportedError("there is no group with a rebalance in the history")
    announce(f"done in {time.monotonic() - begun_s:.1f} s")
    again_on_conflict(lambda: _write(lake, rows))
    return rows


def _write(lake: Lake, rows: pa.Table) -> None:
    """Rows of these groups replace what there was of them, in one commit."""
    lake.create(ADVICE.name, ADVICE.schema)
    keys = rows.group_by(list(GROUP)).aggregate([]).select(list(GROUP))
    groups = sorted(zip(*map(values_of, keys.columns), strict=True))
    with explained(lake.called(ADVICE.name)):
        writer = lake.begin(ADVICE.name).replacing(groups)
        writer.add(rows)
        writer.commit(SCHEMA)


def publish(rows: DataFrame, kafka: Kafka, topic: str) -> None:
    """One record for each group. A run that is repeated sends them again, under the same key."""
    with explained(f"writing to the topic {topic}"):
        (
            frames.messages(rows)
            .write.format("kafka")
            .options(**kafka.connector_options())
            .option("topic", topic)
            .save()
        )
    announce(f"sent to the topic {topic}")


def show(rows: pa.Table) -> None:
    """Print the advice in words, the groups that stood still for longest first."""
    recorded = (
        rows.filter(rows["is_recorded"])
        .select(["cluster_id", "group", "stopped_ms", "text", "unranked", "unknown"])
        .to_pylist()
    )
    recorded.sort(key=lambda row: (-row["stopped_ms"], row["group"]))
    told = rows.filter(rows["is_on_front"]).select(
        ["cluster_id", "group", "ordinal", "notice_ms", "is_best", "text"]
    )
    choices: dict[Key, list[Row]] = {}
    for row in told.to_pylist():
        choices.setdefault((row["cluster_id"], row["group"]), []).append(row)
    for row in recorded[:SHOWN]:
        print("\n".join(_lines(row, choices.get((row["cluster_id"], row["group"]), []))))
    left_out = len(recorded) - SHOWN
    if left_out > 0:
        print(f"{left_out:,} more groups are in the table {ADVICE.name}")


def _lines(recorded: Row, choices: list[Row]) -> list[str]:
    lines = [f"group {recorded['group']}", f"  {recorded['text']}"]
    ordered = sorted(choices, key=lambda row: (row["notice_ms"], row["ordinal"]))
    lines += [f"  {'*' if row['is_best'] else '-'} {row['text']}" for row in ordered]
    if not choices:
        lines.append(f"  {nothing_better(recorded['unranked'])}")
    lines += [f"  {text}" for text in recorded["unranked"]]
    return [*lines, *(f"  not known: {text}" for text in recorded["unknown"])]
