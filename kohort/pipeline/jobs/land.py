"""Lands topics in the lake: `kohort pipeline land TOPIC...`.

Each topic has a table ``land/<topic>``, a checkpoint and a streaming query of its own, so topics
can be added and left out from run to run, and one that fails does not hold up the others.
"""

from __future__ import annotations

import argparse
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from kohort.insight.console import announce
from kohort.insight.counting import counted
from kohort.insight.errors import ReportedError, UsageError
from kohort.pipeline import options as common
from kohort.pipeline.continuous import RetryBudget, stop_on_signals
from kohort.pipeline.faults import explain
from kohort.pipeline.kafka import Admin
from kohort.pipeline.lake import Lake
from kohort.pipeline.landing.decoding import BY_REGISTRY, FORMATS, Decoding
from kohort.pipeline.landing.topic import JOB, LandingSettings, TopicLander
from kohort.pipeline.progress import Progress, landing
from kohort.pipeline.streaming.query import TopicReplacedError

NAME: Final = "kohort-land"
GROUP: Final = "kohort-land"
AT_A_TIME: Final = 4
"""Topics that are landed at the same time in a run that ends; others wait for their turn."""

LOOK_FOR_TOPICS_S: Final = 60.0
"""How often a broker is asked for topics that match, in a run that goes on."""

_LOOK_EVERY_S: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this job."""
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="a topic to land")
    parser.add_argument(
        "--pattern",
        type=_pattern,
        metavar="REGEX",
        help="land all topics whose whole names match, also such as are made later",
    )
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
        type=_begin,
        default="earliest",
        metavar="earliest|latest|TIME",
        help="where to begin with a topic that was never landed; a time such as 2026-11-01T06:00Z "
        "is of the records' timestamps (%(default)s)",
    )
    parser.add_argument(
        "--backfill",
        type=_moment,
        metavar="TIME",
        help="before all else, land what is there since then of topics that were begun later",
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
    parser.add_argument(
        "--partition-by-day",
        action="store_true",
        help="cut tables that are made now by the day of their records, in a column of that name",
    )
    _add_decoding(parser)
    common.add_lake(parser)
    common.add_kafka(parser)
    common.add_metrics(parser)
    common.add_spark(parser)


def run(options: argparse.Namespace) -> int:
    """Raises ReportedError."""
    if not options.topics and options.pattern is None:
        raise UsageError("which topics? Name them, or give --pattern")
    kafka = common.kafka_of(options)
    kafka.check_reachable()
    metrics = common.metrics_of(options, JOB)
    spark = common.session_of(options, NAME)
    lake = common.lake_of(options, spark)
    progress = Progress(metrics)
    settings = settings_of(options, lake)
    failures: list[ReportedError] = []
    with stop_on_signals(spark) as stopping, progress.listening(spark):
        job = _Job(
            lambda topic: TopicLander(
                spark, kafka, lake, topic, settings, progress.put_aside, progress.read_again
            ),
            progress,
            lambda doing: (
                progress.announce_if_quiet(spark, doing) if settings.stream.available_now else None
            ),
            settings,
            RetryBudget(0 if settings.stream.available_now else options.patience, stopping),
            stopping,
            failures,
        )
        with kafka.admin(spark) as admin:
            job.run(_Topics(options.topics, options.pattern, admin))
    if failures:
        raise failures[0]
    announce(f"land: {summed_up(sum(progress.rows.values()), sum(progress.aside.values()))}")
    return 0


def summed_up(rows: int, aside: int) -> str:
    """What the job has landed, in a sentence."""
    text = f"{counted(rows, 'row')} in all"
    return f"{text}, of them {aside:,} in quarantine" if aside else text


def settings_of(options: argparse.Namespace, lake: Lake) -> LandingSettings:
    """What the command line says about topics."""
    return LandingSettings(
        stream=common.stream_of(options, lake),
        record_losses=options.on_data_loss == "record",
        begin=options.begin,
        backfill_ms=options.backfill,
        offsets_max=options.max_offsets_per_trigger,
        bytes_max=options.max_bytes_per_trigger,
        min_partitions=options.min_partitions,
        by_day=options.partition_by_day,
        decoding=_decoding(options),
    )


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what values are")
    group.add_argument(
        "--value",
        choices=FORMATS,
        help="keep values as text, too, as JSON but for strings, in the column decoded; records "
        "of which that cannot be had go into the table quarantined/TOPIC, and are counted",
    )
    group.add_argument(
        "--registry",
        default=os.environ.get("KOHORT_REGISTRY"),
        metavar="URL",
        help="the schema registry whose ids are in front of the values (KOHORT_REGISTRY; "
        "KOHORT_REGISTRY_USER is its name:password)",
    )


def _decoding(options: argparse.Namespace) -> Decoding | None:
    """What was said of values. Raises UsageError."""
    if options.value is None:
        return None
    if options.registry is None and options.value in BY_REGISTRY:
        raise UsageError(f"--value {options.value}: where are the schemas? --registry URL")
    return Decoding(options.value, options.registry, os.environ.get("KOHORT_REGISTRY_USER"))


class _Topics:
    """The topics that are named, and those that match."""

    def __init__(self, named: Sequence[str], pattern: re.Pattern[str] | None, admin: Admin) -> None:
        self._named, self._pattern, self._admin = named, pattern, admin
        self._known: set[str] = set()
        self._next_look_s = 0.0

    def new(self) -> list[str]:
        """Topics that were not there at the last look; a broker is asked now and then.

        Raises:
            UnavailableError, ReportedError
        """
        now_s = time.monotonic()
        if now_s < self._next_look_s or (self._known and self._pattern is None):
            return []
        self._next_look_s = now_s + LOOK_FOR_TOPICS_S
        matching = [] if self._pattern is None else self._admin.names(self._pattern)
        found = [name for name in (*self._named, *matching) if name not in self._known]
        self._known.update(found)
        return list(dict.fromkeys(found))


class _Running:
    """A topic whose query runs."""

    def __init__(self, lander: TopicLander, query: StreamingQuery) -> None:
        self.lander = lander
        self.query = query
        self.since_s = time.monotonic()

    def failure(self) -> ReportedError | None:
        """Why it ended, None if that was in order."""
        error = self.lander.query.failure(self.query)
        if error is None or isinstance(error, ReportedError):
            return error
        try:
            self.lander.diagnose()
        except ReportedError as cause:
            return cause
        return explain(f"the query that lands {self.lander.name}", error)


class _Job:
    """Runs the queries of all topics until they have ended, one of them has failed, or a signal."""

    def __init__(
        self,
        lander_of: Callable[[str], TopicLander],
        progress: Progress,
        pulse: Callable[[str], None],
        settings: LandingSettings,
        budget: RetryBudget,
        stopping: threading.Event,
        failures: list[ReportedError],
    ) -> None:
        """`pulse` is told now and then what the job is at; `failures` gets what ended a topic for
        good, also if all that follows breaks off.
        """
        self._lander_of = lander_of
        self._progress = progress
        self._pulse = pulse
        self._settings = settings
        self._budget = budget
        self._stopping = stopping
        self._failures = failures
        self._running: dict[str, _Running] = {}

    def run(self, topics: _Topics) -> None:
        """Land the topics until all have ended, or were stopped."""
        waiting = topics.new()
        goes_on = not self._settings.stream.available_now
        try:
            while (waiting or self._running) and not self._stopping.is_set():
                if goes_on:
                    waiting += self._new(topics)
                limit = len(waiting) + len(self._running) if goes_on else AT_A_TIME
                while waiting and len(self._running) < limit:
                    self._attempt(waiting.pop(0), waiting)
                for topic in [one for one in self._running if not self._is_active(one)]:
                    self._settle(topic, waiting)
                self._stopping.wait(_LOOK_EVERY_S)
                self._pulse(landing(self._running, len(waiting)))
        finally:
            for running in self._running.values():
                running.lander.query.stop(running.query)
                self._progress.wait_told(running.query)
                running.lander.close()

    def _new(self, topics: _Topics) -> list[str]:
        try:
            return topics.new()
        except ReportedError as error:
            # The queries of topics that are landed already say so if the broker is gone.
            announce(f"land: no look for new topics: {error}")
            return []

    def _is_active(self, topic: str) -> bool:
        return self._running[topic].query.isActive

    def _attempt(self, topic: str, waiting: list[str]) -> None:
        try:
            lander = self._lander_of(topic)
            if (since_ms := self._settings.backfill_ms) is not None:
                count = lander.backfill(since_ms)
                announce(f"land {topic}: {count:,} earlier offsets landed")
            self._running[topic] = _Running(lander, lander.start())
        except ReportedError as error:
            self._retry_or_give_up(topic, error, waiting)

    def _settle(self, topic: str, waiting: list[str]) -> None:
        running = self._running.pop(topic)
        error = running.failure()
        self._progress.wait_told(running.query)
        running.lander.close()
        if running.query.lastProgress is not None:
            self._budget.renew()
        if error is not None:
            self._retry_or_give_up(topic, error, waiting)

    def _retry_or_give_up(self, topic: str, error: ReportedError, waiting: list[str]) -> None:
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


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def _begin(text: str) -> str | int:
    return text if text in {"earliest", "latest"} else _moment(text)


def _moment(text: str) -> int:
    """Milliseconds since 1970; a time without a zone is one of UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time such as 2026-11-01T06:00Z"
        ) from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
