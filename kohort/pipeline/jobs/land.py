"""Lands topics in the lake: `kohort pipeline land TOPIC...`.

Each topic has its own table ``land/<topic>``, checkpoint and streaming query. So the topics may
differ from run to run, and a topic that fails does not stop the others.
"""

import argparse
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from kohort.formats.text import counted
from kohort.insight.errors import ReportedError, UsageError
from kohort.insight.output import announce
from kohort.pipeline import options as common
from kohort.pipeline.continuous import RetryBudget, stop_on_signals
from kohort.pipeline.faults import explain
from kohort.pipeline.java import QUICK
from kohort.pipeline.kafka import Admin
from kohort.pipeline.lake import Lake
from kohort.pipeline.landing.decoding import BY_REGISTRY, FORMATS, Decoding
from kohort.pipeline.landing.topic import JOB, LandingSettings, TopicLander
from kohort.pipeline.progress import Progress, landing
from kohort.pipeline.streaming.query import TopicReplacedError

NAME: Final = "kohort-land"
GROUP: Final = "kohort-land"
AT_A_TIME: Final = 4
"""Number of topics landed concurrently in a run that ends; the remaining topics wait."""

LOOK_FOR_TOPICS_S: Final = 60.0
"""Interval between searches for new matching topics in a continuous run."""

_LOOK_EVERY_S: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="a topic to land")
    parser.add_argument(
        "--pattern",
        type=_pattern,
        metavar="REGEX",
        help="land all topics whose whole names match, including topics created later",
    )
    common.add_stream(parser, group=GROUP, interval_s=10.0)
    parser.add_argument(
        "--on-data-loss",
        choices=("stop", "record"),
        default="stop",
        help="if records were deleted before they were landed: stop with an error, or record "
        "them in the table gaps and continue (%(default)s)",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        type=_begin,
        default="earliest",
        metavar="earliest|latest|TIME",
        help="where to begin with a new topic; a time such as 2026-11-01T06:00Z selects by "
        "the records' timestamps (%(default)s)",
    )
    parser.add_argument(
        "--backfill",
        type=_moment,
        metavar="TIME",
        help="first land earlier records, from this time on, of topics whose landing began later",
    )
    parser.add_argument(
        "--max-offsets-per-trigger",
        type=common.positive,
        metavar="N",
        help="maximum number of records per batch (default: derived from --max-bytes-per-trigger)",
    )
    parser.add_argument(
        "--max-bytes-per-trigger",
        type=common.positive,
        default=1 << 30,
        metavar="BYTES",
        help="approximate stored size of a topic's records per batch (%(default)s)",
    )
    parser.add_argument(
        "--min-partitions",
        type=common.positive,
        metavar="N",
        help="minimum number of tasks per batch, even with fewer partitions; a hint to Spark",
    )
    parser.add_argument(
        "--partition-by-day",
        action="store_true",
        help="partition new tables by the day of their records, in the column day",
    )
    _add_decoding(parser)
    common.add_lake(parser)
    common.add_kafka(parser)
    common.add_metrics(parser)
    common.add_spark(parser)


def run(options: argparse.Namespace) -> int:
    if not options.topics and options.pattern is None:
        raise UsageError("no topic given: name topics, or use --pattern")
    kafka = common.kafka_of(options)
    kafka.check_reachable()
    metrics = common.metrics_of(options, JOB)
    spark = common.session_of(options, NAME, java_options=QUICK)
    lake = common.lake_of(options, spark)
    progress = Progress(metrics)
    settings = settings_of(options, lake)
    with stop_on_signals(spark) as stopping, progress.listening(spark):
        job = _Job(
            lambda topic: TopicLander(
                spark,
                kafka,
                lake,
                topic,
                settings,
                progress.add_quarantined,
                progress.add_uncounted,
            ),
            progress,
            lambda doing: (
                progress.announce_if_quiet(spark, doing) if settings.stream.available_now else None
            ),
            settings,
            RetryBudget(0 if settings.stream.available_now else options.patience, stopping),
            stopping,
        )
        with kafka.admin() as admin:
            job.run(_Topics(options.topics, options.pattern, admin))
    if job.failures:
        raise job.failures[0]
    announce(f"land: {summed_up(sum(progress.rows.values()), sum(progress.quarantined.values()))}")
    return 0


def summed_up(rows: int, quarantined_count: int) -> str:
    text = f"{counted(rows, 'row')} in all"
    return f"{text}, {quarantined_count:,} of them in quarantine" if quarantined_count else text


def settings_of(options: argparse.Namespace, lake: Lake) -> LandingSettings:
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
    group = parser.add_argument_group("decoding of values")
    group.add_argument(
        "--value",
        choices=FORMATS,
        help="also store values as text in the column decoded, as JSON unless they are strings; "
        "records that cannot be decoded go into the table quarantined/TOPIC",
    )
    group.add_argument(
        "--registry",
        default=os.environ.get("KOHORT_REGISTRY"),
        metavar="URL",
        help="the schema registry of the values' schema ids (KOHORT_REGISTRY; name:password in "
        "KOHORT_REGISTRY_USER)",
    )


def _decoding(options: argparse.Namespace) -> Decoding | None:
    """Return how to decode values, as the options say. Raises UsageError."""
    if options.value is None:
        return None
    if options.registry is None and options.value in BY_REGISTRY:
        raise UsageError(f"--value {options.value} needs a schema registry: --registry URL")
    return Decoding(options.value, options.registry, os.environ.get("KOHORT_REGISTRY_USER"))


class _Topics:
    """The topics that the command names, and those that match its pattern."""

    def __init__(self, named: Sequence[str], pattern: re.Pattern[str] | None, admin: Admin) -> None:
        self._named, self._pattern, self._admin = named, pattern, admin
        self._known: set[str] = set()
        self._next_look_s = 0.0

    def new(self) -> list[str]:
        """Return the topics found since the last call; asks a broker every LOOK_FOR_TOPICS_S.

        Raises:
            UnavailableError, ReportedError
        """
        now_s = time.monotonic()
        if now_s < self._next_look_s or (self._known and self._pattern is None):
            return []
        self._next_look_s = now_s + LOOK_FOR_TOPICS_S
        matching = [] if self._pattern is None else self._admin.names(self._pattern)
        new_topics = [name for name in (*self._named, *matching) if name not in self._known]
        self._known.update(new_topics)
        return list(dict.fromkeys(new_topics))


class _Running:
    def __init__(self, lander: TopicLander, query: StreamingQuery) -> None:
        self.lander = lander
        self.query = query
        self.since_s = time.monotonic()

    def failure(self) -> ReportedError | None:
        error = self.lander.query.failure(self.query)
        if error is None or isinstance(error, ReportedError):
            return error
        try:
            self.lander.diagnose()
        except ReportedError as cause:
            return cause
        return explain(f"the query that lands {self.lander.name}", error)


@dataclass(slots=True)
class _Job:
    """Runs the queries of all topics until they end or fail, or until a signal arrives."""

    _lander_of: Callable[[str], TopicLander]
    _progress: Progress
    _pulse: Callable[[str], None]
    """Called regularly with the current activity."""
    _settings: LandingSettings
    _budget: RetryBudget
    _stopping: threading.Event
    failures: list[ReportedError] = field(default_factory=list)
    """The error of each topic that failed permanently; the job raises the first one at its end."""
    _running: dict[str, _Running] = field(default_factory=dict)

    def run(self, topics: _Topics) -> None:
        """Land the topics until all have ended, or were stopped."""
        waiting = topics.new()
        is_continuous = not self._settings.stream.available_now
        try:
            while (waiting or self._running) and not self._stopping.is_set():
                if is_continuous:
                    waiting += self._new(topics)
                limit = len(waiting) + len(self._running) if is_continuous else AT_A_TIME
                while waiting and len(self._running) < limit:
                    self._attempt(waiting.pop(0), waiting)
                for topic in [
                    name for name, one in self._running.items() if not one.query.isActive
                ]:
                    self._settle(topic, waiting)
                self._stopping.wait(_LOOK_EVERY_S)
                self._pulse(landing(self._running, len(waiting)))
        finally:
            for running in self._running.values():
                running.lander.query.stop(running.query)
                self._progress.wait_reported(running.query)
                running.lander.close()

    def _new(self, topics: _Topics) -> list[str]:
        try:
            return topics.new()
        except ReportedError as error:
            # If the broker is gone, the running queries report it.
            announce(f"land: could not search for new topics: {error}")
            return []

    def _attempt(self, topic: str, waiting: list[str]) -> None:
        try:
            lander = self._lander_of(topic)
            if (since_ms := self._settings.backfill_ms) is not None:
                count = lander.backfill(since_ms)
                announce(f"land {topic}: {count:,} earlier offsets landed")
            self._running[topic] = _Running(lander, lander.start())
        except ReportedError as error:
            self._retry_or_fail(topic, error, waiting)

    def _settle(self, topic: str, waiting: list[str]) -> None:
        running = self._running.pop(topic)
        error = running.failure()
        self._progress.wait_reported(running.query)
        running.lander.close()
        if running.query.lastProgress is not None:
            self._budget.renew()
        if error is not None:
            self._retry_or_fail(topic, error, waiting)

    def _retry_or_fail(self, topic: str, error: ReportedError, waiting: list[str]) -> None:
        """Enqueue the topic again if a retry can help; else store the error as permanent."""
        if isinstance(error, TopicReplacedError) and self._settings.record_losses:
            announce(f"land {topic}: {error}")
            waiting.append(topic)
            return
        if self._budget.allows(error):
            announce(f"land {topic}: {error}; trying again")
            self._budget.pause()
            waiting.append(topic)
            return
        # If no other topic waits, runs or has failed, the job now ends, and reports this error.
        if waiting or self._running or self.failures:
            announce(f"land {topic}: {error}")
        self.failures.append(error)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a regular expression: {error}"
        ) from error


def _begin(text: str) -> str | int:
    return text if text in {"earliest", "latest"} else _moment(text)


def _moment(text: str) -> int:
    """Parse a time into milliseconds since 1970; UTC if it has no offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-11-01T06:00Z"
        ) from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
