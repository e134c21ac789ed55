"""Finds settings that would have avoided rebalances: `kohort pipeline advise`.

Replays each group's history, from the lake's tables or from files, through the group core under a
grid of settings. Results go to the table `advice`, to the topic `__rebalance_advice`, and as text
to standard output.
"""

import argparse
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kohort.formats.text import counted, listed
from kohort.insight.advisor.setting import known_settings
from kohort.insight.advisor.text import nothing_better
from kohort.insight.errors import ReportedError, UsageError
from kohort.insight.output import add_timezone, announce
from kohort.insight.tables.advice import ADVICE
from kohort.pipeline import options as common
from kohort.pipeline.advising import ERROR, GROUP, advice_of, events_in_lake, messages
from kohort.pipeline.arrow import conformed, schema_of, spark_schema
from kohort.pipeline.errors import retry_on_conflict
from kohort.pipeline.executors import Batches, results_of
from kohort.pipeline.faults import explained
from kohort.pipeline.java import QUICK
from kohort.pipeline.kafka import Kafka
from kohort.pipeline.lake import Lake, Tables
from kohort.pipeline.progress import pulse
from kohort.pipeline.rebalances import files
from kohort.pipeline.session import IN_PYTHON

NAME: Final = "kohort-advise"
TOPIC: Final = "__rebalance_advice"
SHOWN: Final = 20
"""Number of groups printed: those with the most stopped time."""
FAILED_SHOWN: Final = 20
SCHEMA: Final = schema_of(ADVICE)

_ONCE: Final = (*GROUP, "stopped_ms", "text", "unranked", "unknown", ERROR)
_FRONT: Final = (*GROUP, "ordinal", "notice_ms", "is_best", "text")

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_groups(parser)
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help="a history as JSON lines, or the log of a stock Kafka broker, instead of the "
        "lake's tables; .gz is decompressed, - is standard input; may be repeated, oldest first",
    )
    add_timezone(parser)
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
        "heartbeat_interval_ms, rebalance_timeout_ms, initial_rebalance_delay_ms or "
        "assignment_interval_ms",
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
    known = parse_known(options.known)
    files.check(options.files)
    topic = options.topic if options.topic is not None else "" if options.files else TOPIC
    kafka = common.kafka_of(options)
    if topic:
        kafka.check_reachable()
    spark = common.session_of(options, NAME, java_options=QUICK, conf=IN_PYTHON)
    lake = common.lake_of(options, spark)
    with files.named(options.files) as paths, pulse(spark) as now:
        now.report(f"advising {listed(options.group) if options.group else 'all groups'}")
        if paths:
            events = from_files(spark, paths, options)
        else:
            events = events_in_lake(lake, cluster_id=options.cluster_id, groups=options.group)
        advice = advise(lake, events, days=options.days, known=known)
        if topic:
            publish(advice, kafka, topic)
        show(advice)
    return 0


def parse_known(given: Iterable[str]) -> dict[str, Any]:
    try:
        return known_settings(given)
    except ValueError as error:
        raise UsageError(f"--known {error}") from error


def from_files(spark: SparkSession, paths: list[str], options: argparse.Namespace) -> DataFrame:
    """Return the events of files; lines without an event are counted and skipped."""
    lines = files.events(files.read(spark, paths, options.timezone), options.cluster_id).persist()
    with explained("reading the files of --from"):
        counts = lines.agg(f.count("*"), f.count("group")).collect()[0]
    if not counts[0]:
        raise UsageError("the files of --from are empty")
    if counts[0] > counts[1]:
        skipped = counted(counts[0] - counts[1], "line")
        announce(f"skipped {skipped} without a history event")
    events = lines.where(f.col("group").isNotNull())
    return events.where(f.col("group").isin(*options.group)) if options.group else events


def advise(lake: Lake, events: DataFrame, *, days: int, known: dict[str, Any]) -> DataFrame:
    """Compute the advice and write it to the table `advice`; return it as a persisted DataFrame.

    Raises:
        ReportedError: no group has a rebalance.
    """
    begun_s = time.monotonic()
    advice = advice_of(events, days=days, known=known).persist()
    with explained("computing advice"):
        once = advice.where(f.col("is_recorded") | f.col(ERROR).isNotNull())
        groups = once.select(*_ONCE[:2], ERROR).orderBy(*GROUP).toArrow().to_pylist()
    failed = [row for row in groups if row[ERROR] is not None]
    for row in failed[:FAILED_SHOWN]:
        announce(f"group {row['group']}: {row[ERROR]}")
    if len(failed) > FAILED_SHOWN:
        announce(f"{len(failed) - FAILED_SHOWN:,} more groups have no advice")
    if len(failed) == len(groups):
        raise ReportedError("the history contains no rebalance")
    announce(f"{counted(len(groups) - len(failed), 'group')} in {time.monotonic() - begun_s:.1f} s")
    advice = advice.where(f.col(ERROR).isNull())
    written = {(row["cluster_id"], row["group"]) for row in groups if row[ERROR] is None}
    retry_on_conflict(lambda: _write(lake, advice, written))
    return advice


def _write(lake: Lake, advice: DataFrame, groups: set[tuple[str, str]]) -> None:
    lake.create(ADVICE.name, spark_schema(ADVICE))
    with explained(lake.label(ADVICE.name)):
        rows = advice.select(*ADVICE.names).coalesce(1).sortWithinPartitions(*GROUP, "ordinal")
        results_of(rows, partial(_replace, lake.tables, groups))


def _replace(tables: Tables, groups: set[tuple[str, str]], batches: Batches) -> Iterable[bool]:
    with explained(tables.label(ADVICE.name)):
        parts = (conformed(pa.Table.from_batches([batch]), SCHEMA) for batch in batches)
        yield tables.begin(ADVICE.name).replace(parts, SCHEMA, groups)


def publish(rows: DataFrame, kafka: Kafka, topic: str) -> None:
    """Send one record per group. A repeated run sends the records again, with the same key."""
    with explained(f"writing to the topic {topic}"):
        (
            messages(rows)
            .write.format("kafka")
            .options(**kafka.connector_options())
            .option("topic", topic)
            .save()
        )
    announce(f"sent to the topic {topic}")


def show(advice: DataFrame) -> None:
    """Print the advice, groups with the most stopped time first."""
    recorded = advice.where("is_recorded")
    count = recorded.count()
    shown = (
        recorded.orderBy(f.desc("stopped_ms"), "group").limit(SHOWN).select(*_ONCE).toArrow()
    ).to_pylist()
    of_shown = f.col("group").isin(*(row["group"] for row in shown))
    choices: dict[tuple[str, str], list[Row]] = {}
    for row in advice.where(f.col("is_on_front") & of_shown).select(*_FRONT).toArrow().to_pylist():
        choices.setdefault((row["cluster_id"], row["group"]), []).append(row)
    for row in shown:
        print("\n".join(_lines(row, choices.get((row["cluster_id"], row["group"]), []))))
    if count > len(shown):
        print(f"{count - len(shown):,} more groups are in the table {ADVICE.name}")


def _lines(recorded: Row, choices: list[Row]) -> list[str]:
    lines = [f"group {recorded['group']}", f"  {recorded['text']}"]
    ordered = sorted(choices, key=lambda row: (row["notice_ms"], row["ordinal"]))
    lines += [f"  {'*' if row['is_best'] else '-'} {row['text']}" for row in ordered]
    if not choices:
        lines.append(f"  {nothing_better(recorded['unranked'])}")
    lines += [f"  {text}" for text in recorded["unranked"]]
    return [*lines, *(f"  not known: {text}" for text in recorded["unknown"])]
