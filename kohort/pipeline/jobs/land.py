"""Lands topics in the lake: `kohort pipeline land TOPIC...`.

Each topic has a table ``land/<topic>``, a checkpoint and a streaming query of its own, so topics
can be added and left out from run to run, and one that fails does not hold up the others.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from kohort.pipeline import options as common
from kohort.pipeline.console import announce
from kohort.pipeline.errors import PipelineError
from kohort.pipeline.faults import explain
from kohort.pipeline.lake import Lake
from kohort.pipeline.landing.topic import LandingSettings, TopicLander
from kohort.pipeline.progress import Progress
from kohort.pipeline.retry_budget import RetryBudget
from kohort.pipeline.stopping import stop_on_signals
from kohort.pipeline.streaming.query import TopicReplacedError

NAME: Final = "kohort-land"
GROUP: Final = "kohort-land"
AT_A_TIME: Final = 4
"""Topics that are landed at the same time in a run that ends; others wait for their turn."""

_LOOK_EVERY_S: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this job."""
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="a topic to land")
    common.add_stream(parser, group=GROUP, interval_s=10.0)
    parser.add_argument(
        "--on-data-loss",
        choices=("stop", "record"),
        default="stop",
        help="when records were deleted before they were landed: stop and name them, or note "
        "them in the table gaps and go on (%(default)s)",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        choices=("earliest", "latest"),
        default="earliest",
        help="where to begin with a topic that was never landed (%(default)s)",
    )
    parser.add_argument(
        "--max-offsets-per-trigger",
        type=common.positive,
        metavar="N",
        help="so many records in a batch at most; without it, --max-bytes-per-trigger decides",
    )
    parser.add_argument(
        "--max-bytes-per-trigger",
        type=common.positive,
        default=1 << 30,
        metavar="BYTES",
        help="about so much of a topic, as it is stored, in a batch (%(default)s)",
    )
    parser.add_argument(
        "--min-partitions",
        type=common.positive,
        metavar="N",
        help="so many tasks or more, however few partitions a topic has; Spark takes it as a hint",
    )
    common.add_lake(parser)
    common.add_kafka(parser)
    common.add_spark(parser)


def run(options: argparse.Namespace) -> int:
    """Raises PipelineError."""
    kafka = common.kafka_of(options)
    kafka.check_reachable()
    spark = common.session_of(options, NAME)
    lake = common.lake_of(options, spark)
    progress = Progress()
    settings = settings_of(options, lake)
    failures: list[PipelineError] = []
    with stop_on_signals(spark) as stopping, progress.listening(spark):
        job = _Job(
            lambda topic: TopicLander(spark, kafka, lake, topic, settings),
            progress,
            lambda: progress.announce_if_quiet(spark) if settings.stream.available_now else None,
            settings,
            RetryBudget(0 if settings.stream.available_now else options.patience, stopping),
            stopping,
            failures,
        )
        job.run(list(dict.fromkeys(options.topics)))
    if failures:
        raise failures[0]
    announce(f"land: {sum(progress.rows.values()):,} rows in all")
    return 0


def settings_of(options: argparse.Namespace, lake: Lake) -> LandingSettings:
    """What the command line says about topics."""
    return LandingSettings(
        stream=common.stream_of(options, lake),
        record_losses=options.on_data_loss == "record",
        from_latest=options.begin == "latest",
        offsets_max=options.max_offsets_per_trigger,
        bytes_max=options.max_bytes_per_trigger,
        min_partitions=options.min_partitions,
    )


class _Running:
    """A topic whose query runs."""

    def __init__(self, lander: TopicLander, query: StreamingQuery) -> None:
        self.lander = lander
        self.query = query
        self.since_s = time.monotonic()

    def outcome(self) -> PipelineError | None:
        """Why it ended, None if that was in order."""
        error = self.lander.query.outcome(self.query)
        if error is None or isinstance(error, PipelineError):
            return error
        try:
            self.lander.diagnose()
        except PipelineError as cause:
            return cause
        return explain(f"the query that lands {self.lander.name}", error)


class _Job:
    """Runs the queries of all topics until they have ended, one of them has failed, or a signal."""

    def __init__(
        self,
        lander_of: Callable[[str], TopicLander],
        progress: Progress,
        pulse: Callable[[], None],
        settings: LandingSettings,
        budget: RetryBudget,
        stopping: threading.Event,
        failures: list[PipelineError],
    ) -> None:
        """`failures` gets what ended a topic for good, also if all that follows breaks off."""
        self._lander_of = lander_of
        self._progress = progress
        self._pulse = pulse
        self._settings = settings
        self._budget = budget
        self._stopping = stopping
        self._failures = failures
        self._running: dict[str, _Running] = {}

    def run(self, topics: Sequence[str]) -> None:
        """Until all have ended, or were stopped."""
        waiting = list(topics)
        limit = AT_A_TIME if self._settings.stream.available_now else len(waiting)
        try:
            while (waiting or self._running) and not self._stopping.is_set():
                while waiting and len(self._running) < limit:
                    self._attempt(waiting.pop(0), waiting)
                for topic in [one for one in self._running if not self._is_active(one)]:
                    self._settle(topic, waiting)
                self._stopping.wait(_LOOK_EVERY_S)
                self._pulse()
        finally:
            for running in self._running.values():
                running.lander.query.stop(running.query)
                self._progress.wait_told(running.query)
                running.lander.close()

    def _is_active(self, topic: str) -> bool:
        return self._running[topic].query.isActive

    def _attempt(self, topic: str, waiting: list[str]) -> None:
        try:
            lander = self._lander_of(topic)
            self._running[topic] = _Running(lander, lander.start())
        except PipelineError as error:
            self._judge(topic, error, waiting)

    def _settle(self, topic: str, waiting: list[str]) -> None:
        running = self._running.pop(topic)
        error = running.outcome()
        self._progress.wait_told(running.query)
        running.lander.close()
        if running.query.lastProgress is not None:
            self._budget.renew()
        if error is not None:
            self._judge(topic, error, waiting)

    def _judge(self, topic: str, error: PipelineError, waiting: list[str]) -> None:
        """Puts the topic in the queue again where a second try can help."""
        if isinstance(error, TopicReplacedError) and self._settings.record_losses:
            announce(f"land {topic}: {error}")
            waiting.append(topic)
            return
        if self._budget.allows(error):
            announce(f"land {topic}: {error}; trying again")
            self._budget.pause()
            waiting.append(topic)
            return
        # The only failure is told when the job ends by it.
        if waiting or self._running or self._failures:
            announce(f"land {topic}: {error}")
        self._failures.append(error)
