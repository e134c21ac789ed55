"""Finds settings that would have avoided rebalances: `kohort pipeline advise`.

Replays each group's history, from the lake's tables or from files, through the group core under a
grid of settings. Results go to the table `advice`, to the topic `__rebalance_advice`, and as text
to standard output.
"""

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
from kohort.insight.errors import ReportedError, UsageError
from kohort.insight.output import announce, counted
from kohort.pipeline import options as common
from kohort.pipeline.advising import (
    FAILED_SHOWN,
    Advisor,
    Events,
    events_in_lake,
    events_in_lines,
    in_batches,
)
from kohort.pipeline.arrow import schema_of, values_of
from kohort.pipeline.errors import retry_on_conflict
from kohort.pipeline.faults import explained
from kohort.pipeline.java import QUICK
from kohort.pipeline.kafka import Kafka
from kohort.pipeline.lake import Lake
from kohort.pipeline.progress import pulse
from kohort.pipeline.rebalances import files
from kohort.pipeline.schemas.advice import ADVICE
from kohort.pipeline.transformations import advice as frames
from kohort.pipeline.transformations.advice import GROUP

NAME: Final = "kohort-advise"
TOPIC: Final = "__rebalance_advice"
SHOWN: Final = 20
"""Number of groups printed: those with the most stopped time."""
SCHEMA: Final = schema_of(ADVICE)

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="GROUP",
        help="only this group; may be repeated",
    )
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help="a history as JSON lines, or the log of a stock Kafka broker, instead of the "
        "lake's tables; .gz is decompressed, - is standard input; may be repeated, oldest first",
    )
    parser.add_argument(
        "--timezone",
        type=_zone,
        default=UTC,
        metavar="NAME",
        help="time zone of a log whose times have no offset (UTC)",
    )
    parser.add_argument(
        "--cluster-id",
        default="",
        metavar="ID",
        help="cluster id for files; with tables: only groups of this cluster",
    )
    parser.add_argument(
        "--days",
        type=common.positive,
        default=35,
        help="days before a group's newest event to use (%(default)s)",
    )
    parser.add_argument(
        "--known",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a recorded setting that the history lacks: session_timeout_ms, "
        "heartbeat_interval_ms, rebalance_timeout_ms or initial_rebalance_delay_ms",
    )
    parser.add_argument(
        "--topic",
        metavar="NAME",
        help=f'topic to which advice is sent ({TOPIC}; none with --from); "" for none',
    )
    common.add_lake(parser)
    common.add_kafka(parser)
    common.add_spark(parser)


def run(options: argparse.Namespace) -> int:
    """Run the job. Raises ReportedError."""
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
        events = events_in_lake(lake, cluster_id=options.cluster_id, groups=options.group)
    rows = advise(lake, events, days=options.days, known=known)
    if topic:
        publish(spark.createDataFrame(rows, ADVICE.schema), kafka, topic)
    show(rows)
    return 0


def parse_known(given: Iterable[str]) -> dict[str, Any]:
    """Parse the values of `--known`. Raises UsageError."""
    try:
        return known_settings(given)
    except ValueError as error:
        raise UsageError(f"--known {error}") from error


def from_files(options: argparse.Namespace) -> Iterator[Events]:
    """Yield the events of files; other lines are counted and skipped."""
    events: dict[Key, list[str]] = {}
    invalid_count = count = 0
    for chunk in files.chunks(options.files, options.timezone):
        lines = [line for _, line in chunk.lines]
        count += len(lines)
        chunk_events, invalid = events_in_lines(options.cluster_id, lines)
        invalid_count += invalid
        for key, texts in chunk_events.items():
            if not options.group or key[1] in options.group:
                events.setdefault(key, []).extend(texts)
    if not count:
        raise UsageError("the files of --from are empty")
    if invalid_count:
        announce(f"skipped {counted(invalid_count, 'line')} without a history event")
    yield from in_batches(events)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"unknown time zone {name!r}") from error


def advise(lake: Lake, events: Iterable[Events], *, days: int, known: dict[str, Any]) -> pa.Table:
    """Compute the advice and write the table; return its rows of these groups.

    Raises:
        ReportedError: no group has a rebalance.
    """
    begun_s = time.monotonic()
    advising = Advisor(lake.spark, days=days, known=known, report=announce)
    with pulse(lake.spark):
        rows = pa.concat_tables([SCHEMA.empty_table(), *map(advising.rows, events)])
    if advising.failed > FAILED_SHOWN:
        announce(f"{advising.failed - FAILED_SHOWN:,} more groups have no advice")
    if not advising.groups:
        raise ReportedError("the history contains no rebalance")
    announce(f"done in {time.monotonic() - begun_s:.1f} s")
    retry_on_conflict(lambda: _write(lake, rows))
    return rows


def _write(lake: Lake, rows: pa.Table) -> None:
    lake.create(ADVICE.name, ADVICE.schema)
    keys = rows.group_by(list(GROUP)).aggregate([]).select(list(GROUP))
    groups = sorted(zip(*map(values_of, keys.columns), strict=True))
    with explained(lake.label(ADVICE.name)):
        writer = lake.begin(ADVICE.name).replacing(groups)
        writer.add(rows)
        writer.commit(SCHEMA)


def publish(rows: DataFrame, kafka: Kafka, topic: str) -> None:
    """Send one record per group. A repeated run sends them again, with the same key."""
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
    """Print the advice, groups with the most stopped time first."""
    recorded = (
        rows.filter(rows["is_recorded"])
        .select(["cluster_id", "group", "stopped_ms", "text", "unranked", "unknown"])
        .to_pylist()
    )
    recorded.sort(key=lambda row: (-row["stopped_ms"], row["group"]))
    front = rows.filter(rows["is_on_front"]).select(
        ["cluster_id", "group", "ordinal", "notice_ms", "is_best", "text"]
    )
    choices: dict[Key, list[Row]] = {}
    for row in front.to_pylist():
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
