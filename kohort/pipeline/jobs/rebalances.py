"""Writes the rebalance history to tables: `kohort pipeline rebalances`.

Reads the topic with a streaming query, or files. docs/pipeline-tables.md lists the tables. A
repeated run does not change existing rows.
"""

import argparse
import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import fields
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from kohort.formats.text import counted
from kohort.insight.analysis.rows import Group
from kohort.insight.errors import ReportedError
from kohort.insight.output import add_timezone, announce
from kohort.pipeline import options as common
from kohort.pipeline.continuous import RetryBudget, stop_on_signals
from kohort.pipeline.java import QUICK
from kohort.pipeline.kafka import TopicMissingError
from kohort.pipeline.lake import Lake
from kohort.pipeline.metrics import Metrics
from kohort.pipeline.progress import Pulse, pulse
from kohort.pipeline.rebalances import files
from kohort.pipeline.rebalances.findings import Findings, Thresholds
from kohort.pipeline.rebalances.ingest import Ingest, Tally
from kohort.pipeline.rebalances.stream import (
    JOB,
    OFFSETS_DEFAULT,
    TOPIC,
    HistorySettings,
    HistoryStream,
)
from kohort.pipeline.session import IN_PYTHON

NAME: Final = "kohort-rebalances"
GROUP: Final = "kohort-rebalances"
NO_HISTORY: Final = (
    f"Kohort creates the topic {TOPIC} at the first rebalance of a group. For other brokers "
    "`kohort watch` writes a history; --from reads its file, or the brokers' logs"
)
_LOOK_EVERY_S: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    _add_thresholds(parser)
    common.add_lake(parser)
    common.add_kafka(parser)
    common.add_metrics(parser)
    common.add_spark(parser)


def run(options: argparse.Namespace) -> int:
    if options.files:
        files.check(options.files)
    else:
        kafka = common.kafka_of(options)
        kafka.check_reachable()
    metrics = common.metrics_of(options, JOB)
    spark = common.session_of(options, NAME, java_options=QUICK, conf=IN_PYTHON)
    with pulse(spark) as progress:
        source = "files" if options.files else options.topic
        job = _Job(common.lake_of(options, spark), _thresholds(options), progress, metrics, source)
        if options.files:
            job.read_files(spark, options)
        else:
            job.read_topic(spark, options)
    announce(f"{JOB}: {job.tally.shown()}")
    return 0


class _Job:
    """Writes batches of records and recomputes findings, with progress messages and metrics."""

    def __init__(
        self,
        lake: Lake,
        thresholds: Thresholds,
        progress: Pulse,
        metrics: Metrics,
        source: str,
    ) -> None:
        self.tally = Tally()
        self._metrics, self._source = metrics, source
        self._progress = progress
        self._lake = lake
        self._ingest = Ingest(lake)
        self._findings = Findings(lake, thresholds, self._progress.report)

    def write(self, batch: Callable[[], Tally], count: int | None = None) -> Tally:
        """Call `batch`, which writes about `count` records; report the result."""
        begun_s = time.monotonic()
        number = "records" if count is None else counted(count, "record")
        self._progress.report(f"writing {number}")
        tally = batch()
        self._ingest.compact()
        self.tally.add(tally)
        took_s = time.monotonic() - begun_s
        announce(f"{JOB}: {tally.shown()}; {took_s:.1f} s")
        for reason, refused in tally.reasons.items():
            self._metrics.quarantined(self._source, reason, refused)
        self._metrics.batch(self._source, tally.records if count is None else count, took_s)
        return tally

    def renew(self, among: Collection[Group] | None = None, *, everything: bool = False) -> None:
        """Recompute the findings of groups with new events, only of those in `among` if it is
        given; with `everything`, recompute those of all groups.
        """
        begun_s = time.monotonic()
        count = self._findings.renew(among, everything=everything)
        if count:
            took_s = time.monotonic() - begun_s
            announce(f"{JOB}: findings of {counted(count, 'group')} renewed; {took_s:.1f} s")

    def read_files(self, spark: SparkSession, options: argparse.Namespace) -> None:
        with files.named(options.files) as paths:
            zone, cluster_id = options.timezone, options.cluster_id
            if files.are_small(paths):
                self.write(
                    lambda: self._ingest.writer.write_all(files.records(paths, zone, cluster_id))
                )
            else:
                self.write(lambda: self._ingest.write(files.read(spark, paths, zone), cluster_id))
        self.renew(everything=options.recompute)

    def read_topic(self, spark: SparkSession, options: argparse.Namespace) -> None:
        def handle_batch(records: DataFrame, cluster_id: str, count: int) -> None:
            tally = self.write(lambda: self._ingest.write(records, cluster_id, count), count)
            if not options.available_now:
                self.renew(tally.groups)

        def open_stream() -> HistoryStream:
            return HistoryStream(
                spark,
                common.kafka_of(options),
                _settings(options, self._lake),
                table_id=self._ingest.table_id,
                handle_batch=handle_batch,
            )

        def attempt() -> None:
            stream = self._opened(open_stream, options, stopping)
            if stream is None:
                return
            with closing(stream):
                # Renew what a killed run did not renew; with --recompute, all findings.
                self.renew(everything=options.recompute)
                self._follow(stream, budget, stopping)

        with stop_on_signals(spark) as stopping:
            budget = RetryBudget(0 if options.available_now else options.patience, stopping)
            _retry(attempt, budget, stopping)
        # A user who stops the job does not wait for findings; the next run renews them.
        if not stopping.is_set():
            self.renew()

    def _opened(
        self,
        open_stream: Callable[[], HistoryStream],
        options: argparse.Namespace,
        stopping: threading.Event,
    ) -> HistoryStream | None:
        """Open the topic's stream. If the default topic does not exist, return None with
        --available-now; otherwise wait for it, and return None if the job is stopped meanwhile.
        """
        is_announced = False
        while True:
            try:
                return open_stream()
            except TopicMissingError:
                # Only the default topic is waited for: another name may be mistyped.
                if options.topic != TOPIC:
                    raise
            if not is_announced:
                announce(f"{JOB}: {options.bootstrap_server} has no history yet. {NO_HISTORY}")
                is_announced = True
            if options.available_now or stopping.wait(options.interval):
                return None

    def _follow(
        self, stream: HistoryStream, budget: RetryBudget, stopping: threading.Event
    ) -> None:
        query = stream.start()
        try:
            while query.isActive and not stopping.wait(_LOOK_EVERY_S):
                pass
        finally:
            stream.stop(query)
        if query.lastProgress is not None:
            budget.renew()
        stream.raise_failure(query)


def _retry(attempt: Callable[[], None], budget: RetryBudget, stopping: threading.Event) -> None:
    """Call `attempt` until it succeeds; raise ReportedError if a retry would not help."""
    while not stopping.is_set():
        try:
            attempt()
        except ReportedError as error:
            if not budget.allows(error):
                raise
            announce(f"{JOB}: {error}; trying again")
            budget.pause()
        else:
            return


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic", default=TOPIC, help="topic with the broker's history (%(default)s)"
    )
    parser.add_argument(
        "--from",
        dest="files",
        nargs="+",
        metavar="FILE",
        help="read files instead: histories as JSON lines, the directory of `kohort watch`, or "
        "logs of Kafka brokers, oldest first; "
        "- is standard input, .gz is decompressed",
    )
    parser.add_argument(
        "--cluster-id",
        default="file",
        metavar="ID",
        help="cluster id for files (%(default)s)",
    )
    add_timezone(parser)
    common.add_stream(parser, group=GROUP, interval_s=10.0)
    parser.add_argument(
        "--max-offsets-per-trigger",
        type=common.positive,
        default=OFFSETS_DEFAULT,
        metavar="N",
        help="maximum number of events per batch (%(default)s)",
    )


def _add_thresholds(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("findings")
    defaults = Thresholds()
    for name, text in (
        ("days", "days before a group's newest event that findings cover"),
        ("storm-quiet-ms", "maximum gap between rebalances of a storm"),
        ("storm-size", "minimum number of rebalances in a storm"),
        ("flapping-moves", "number of moves from which a partition counts as flapping"),
        ("flapping-window-ms", "time window of these moves"),
    ):
        group.add_argument(
            f"--{name}",
            type=common.positive,
            default=getattr(defaults, name.replace("-", "_")),
            metavar="N",
            help=f"{text} (%(default)s)",
        )
    group.add_argument(
        "--recompute",
        action="store_true",
        help="recompute all findings, for example after changing these options",
    )


def _thresholds(options: argparse.Namespace) -> Thresholds:
    return Thresholds(**{one.name: getattr(options, one.name) for one in fields(Thresholds)})


def _settings(options: argparse.Namespace, lake: Lake) -> HistorySettings:
    return HistorySettings(
        topic=options.topic,
        stream=common.stream_of(options, lake),
        offsets_max=options.max_offsets_per_trigger,
    )
