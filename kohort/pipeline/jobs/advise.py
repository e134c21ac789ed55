"""Which settings would have avoided rebalances: `kohort pipeline advise`.

Replays each group's history, from the lake's tables or from a file, through the coordinator's own
rules under a grid of settings. Results go to the table `advice`, to the topic `__rebalance_advice`,
and, in words, to standard output.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from datetime import UTC
from functools import reduce
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from kohort.pipeline import options as common
from kohort.pipeline.advisor.setting import known_settings
from kohort.pipeline.console import announce
from kohort.pipeline.errors import PipelineError, UsageError
from kohort.pipeline.faults import explained
from kohort.pipeline.java import QUICK
from kohort.pipeline.kafka import Kafka
from kohort.pipeline.lake import Lake
from kohort.pipeline.progress import pulse
from kohort.pipeline.rebalances import files
from kohort.pipeline.schemas import AVOIDED, REBALANCES
from kohort.pipeline.schemas.advice import ADVICE
from kohort.pipeline.transformations import advice as steps
from kohort.pipeline.transformations.common import GROUP

NAME: Final = "kohort-advise"
TOPIC: Final = "__rebalance_advice"
SHOWN: Final = 20
"""Groups on the terminal: those that stood still for longest."""
TASKS_PER_CORE: Final = 4


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
    """The whole job. Raises PipelineError."""
    known = parse_known(options.known)
    files.check(options.files)
    topic = options.topic if options.topic is not None else "" if options.files else TOPIC
    kafka = common.kafka_of(options)
    if topic:
        kafka.check_reachable()
    spark = common.session_of(options, NAME, java_options=QUICK)
    lake = common.lake_of(options, spark)
    events = from_files(spark, options) if options.files else from_lake(lake, options)
    rows = advise(lake, events, days=options.days, known=known)
    if topic:
        publish(rows, kafka, topic)
    show(rows)
    return 0


def parse_known(given: Iterable[str]) -> dict[str, Any]:
    """What `--known NAME=VALUE` means. Raises UsageError."""
    try:
        return known_settings(given)
    except ValueError as error:
        raise UsageError(f"--known {error}") from error


def from_lake(lake: Lake, options: argparse.Namespace) -> DataFrame:
    """The events of the tables that `kohort pipeline rebalances` has made."""
    events = lake.read(REBALANCES.name).select(*steps.EVENTS.names)
    if lake.exists(AVOIDED.name):
        events = events.unionByName(lake.read(AVOIDED.name).select(*steps.EVENTS.names))
    if options.cluster_id:
        events = events.where(f.col("cluster_id") == options.cluster_id)
    return _of_groups(events, options.group)


def from_files(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The events of files; lines that are none are counted and left out."""
    frames = [
        _frame(spark, options.cluster_id, piece)
        for piece in files.pieces(options.files, options.timezone)
    ]
    if not frames:
        raise UsageError("nothing is in the files of --from")
    text = f.col("event")
    events = reduce(DataFrame.unionAll, frames).select(
        "cluster_id", f.get_json_object(text, "$.group").alias("group"), text
    )
    with explained("reading the files of --from"):
        bad = events.where(f.col("group").isNull()).count()
    if bad:
        announce(f"{bad:,} lines are not events of a history; left out")
    return _of_groups(events.where(f.col("group").isNotNull()), options.group)


def _frame(spark: SparkSession, cluster_id: str, piece: files.Piece) -> DataFrame:
    lines = [line.decode(errors="replace") for _, line in piece.lines]
    return spark.createDataFrame(
        pa.table({"cluster_id": [cluster_id] * len(lines), "event": lines})
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"no time zone is called {name!r}") from error


def _of_groups(events: DataFrame, groups: list[str]) -> DataFrame:
    return events.where(f.col("group").isin(groups)) if groups else events


def advise(lake: Lake, events: DataFrame, *, days: int, known: dict[str, Any]) -> DataFrame:
    """Work it out and write the table; returns its rows of these groups.

    Raises:
        PipelineError: there is no group with a rebalance.
    """
    begun_s = time.monotonic()
    spark = events.sparkSession
    found = steps.traces(events, days=days, known=known).persist()
    try:
        with explained("reading the history"):
            counted = found.agg(f.count("trace"), f.sum("settings")).first()
            failed = found.where(f.col("error").isNotNull()).limit(SHOWN).collect()
        for row in failed:
            announce(f"group {row['group']}: {row['error']}")
        assert counted is not None
        groups, pairs = int(counted[0]), int(counted[1] or 0)
        if not groups:
            raise PipelineError("there is no group with a rebalance in the history")
        announce(f"{groups:,} groups, {pairs:,} pairs of a group and a setting to replay")
        tasks = max(spark.sparkContext.defaultParallelism * TASKS_PER_CORE, 1)
        rows = steps.advice(found, steps.outcomes(found, tasks=tasks)).persist()
        with explained("replaying"), pulse(spark):
            rows.count()
        announce(f"done in {time.monotonic() - begun_s:.1f} s")
        _write(lake, rows)
        return rows
    finally:
        found.unpersist()


def _write(lake: Lake, rows: DataFrame) -> None:
    """Rows of these groups replace what there was of them, in one transaction."""
    lake.create(ADVICE.name, ADVICE.schema)
    groups = f.broadcast(rows.select(*GROUP).distinct())
    others = lake.read(ADVICE.name).join(groups, list(GROUP), "left_anti")
    # Columns are added as time goes by: rows of before have nothing in them.
    lake.overwrite(others.unionByName(rows, allowMissingColumns=True), ADVICE.name)


def publish(rows: DataFrame, kafka: Kafka, topic: str) -> None:
    """One record for each group. A run that is repeated sends them again, under the same key."""
    with explained(f"writing to the topic {topic}"):
        (
            steps.messages(rows)
            .write.format("kafka")
            .options(**kafka.connector_options())
            .option("topic", topic)
            .save()
        )
    announce(f"sent to the topic {topic}")


def show(rows: DataFrame) -> None:
    """In words, the groups that stood still for longest first."""
    longest = (
        rows.where("is_recorded").orderBy(f.desc("stopped_ms"), "group").limit(SHOWN).collect()
    )
    names = [row["group"] for row in longest]
    told = rows.where(f.col("is_on_front") & f.col("group").isin(names)).orderBy("ordinal")
    choices: dict[tuple[str, str], list[Row]] = {}
    for row in told.collect():
        choices.setdefault((row["cluster_id"], row["group"]), []).append(row)
    for row in longest:
        print("\n".join(_lines(row, choices.get((row["cluster_id"], row["group"]), []))))  # noqa: T201 - its output.
    left_out = rows.where("is_recorded").count() - len(longest)
    if left_out > 0:
        print(f"{left_out:,} more groups are in the table {ADVICE.name}")  # noqa: T201 - as above.


def _lines(recorded: Row, choices: list[Row]) -> list[str]:
    lines = [f"group {recorded['group']}", f"  {recorded['text']}"]
    ordered = sorted(choices, key=lambda row: (row["notice_ms"], row["ordinal"]))
    lines += [f"  {'*' if row['is_best'] else '-'} {row['text']}" for row in ordered]
    if not choices:
        lines.append("  nothing that was tried would have been better than what there is")
    lines += [f"  {text}" for text in recorded["unranked"]]
    return [*lines, *(f"  not known: {text}" for text in recorded["unknown"])]
