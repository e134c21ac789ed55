"""Reports the progress of streaming queries and long computations to the user."""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from kohort.formats.text import counted
from kohort.insight.output import announce
from kohort.pipeline.metrics import Metrics

LATE_S_MAX: Final = 10.0
"""Time to wait for the last progress events; Spark drops some under load."""


QUIET_S_MAX: Final = 10.0
"""Interval of progress lines if there is nothing else to report."""


class Progress(StreamingQueryListener):
    """Reports each batch of each query: rows, rows per second, and lag in offsets."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self.rows: dict[str, int] = {}
        """Total number of rows by query name."""
        self.quarantined: dict[str, int] = {}
        """Number of quarantined records by topic."""
        self._uncounted: dict[tuple[str, int], int] = {}
        """Rows that Spark does not count, by topic and batch; see `add_uncounted`."""
        self._announced_s = time.monotonic()
        self._ended: set[str] = set()
        self._has_ended = threading.Condition()

    @contextmanager
    def listening(self, spark: SparkSession) -> Iterator[None]:
        spark.streams.addListener(self)
        try:
            yield
        finally:
            # The session may belong to the caller, who continues to use it.
            spark.streams.removeListener(self)

    def wait_reported(self, query: StreamingQuery) -> None:
        """Wait for the last progress events of an ended query, which Spark delivers later."""
        with self._has_ended:
            self._has_ended.wait_for(lambda: str(query.runId) in self._ended, LATE_S_MAX)

    def announce_if_quiet(self, spark: SparkSession, doing: str) -> None:
        """Report the current activity and stages if no line was printed for a while."""
        if time.monotonic() - self._announced_s < QUIET_S_MAX:
            return
        self._announced_s = time.monotonic()
        announce_stages(spark, doing)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name.
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name.
        progress = event.progress
        name = progress.name or str(progress.id)
        topic = name.rpartition(" ")[2]
        rows = self._uncounted.pop((topic, progress.batchId), progress.numInputRows)
        if not rows:
            return
        is_first = name not in self.rows
        self.rows[name] = self.rows.get(name, 0) + rows
        self._announced_s = time.monotonic()
        announce(line(name, progress, rows, is_first=is_first))
        if self._metrics is not None:
            self._metrics.batch(
                topic,
                rows,
                progress.batchDuration / 1000,
                behind(progress),
            )

    def add_quarantined(self, topic: str, count: int) -> None:
        self.quarantined[topic] = self.quarantined.get(topic, 0) + count
        if self._metrics is not None:
            self._metrics.quarantined(topic, "undecodable", count)

    def add_uncounted(self, topic: str, batch_id: int, count: int) -> None:
        """Store a batch's number of rows, to report it in place of Spark's count, which lacks rows
        that the job reads itself.
        """
        self._uncounted[topic, batch_id] = count

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name.
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name.
        with self._has_ended:
            self._ended.add(str(event.runId))
            self._has_ended.notify_all()


class Pulse:
    """The current activity, reported every ten seconds."""

    def __init__(self) -> None:
        self.doing = ""

    def report(self, doing: str) -> None:
        self.doing = doing


@contextmanager
def pulse(spark: SparkSession) -> Iterator[Pulse]:
    """Report the current activity every ten seconds while the context lasts."""
    over = threading.Event()
    now = Pulse()

    def beat() -> None:
        # Ignore that Spark has ended: the computation fails too, and its error is reported.
        with suppress(Exception):
            while not over.wait(QUIET_S_MAX):
                announce_stages(spark, now.doing)

    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield now
    finally:
        over.set()
        thread.join()


def landing(topics: Iterable[str], to_come: int) -> str:
    """Return a line on the topics being landed, and the number of those waiting."""
    doing = f"landing {', '.join(topics)}"
    return f"{doing}, {counted(to_come, 'topic')} waiting" if to_come else doing


def announce_stages(spark: SparkSession, doing: str = "") -> None:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
    tasks = sum(stage.numTasks for stage in stages if stage is not None)
    tasks_text = f"{done} of {tasks} tasks done" if done else ""
    if doing or tasks_text:
        announce("working: " + ", ".join(part for part in (doing, tasks_text) if part))


def line(
    name: str, progress: StreamingQueryProgress, row_count: int, *, is_first: bool = False
) -> str:
    """Return the line for a batch. The first batch of a run has no rate, because Spark loads and
    compiles most of its code in it.
    """
    seconds = progress.batchDuration / 1000
    count = behind(progress)
    lag = "lag unknown" if count is None else f"{counted(count, 'offset')} behind"
    rows = counted(row_count, "row")
    rate = "" if is_first else f", {row_count / max(seconds, 0.001):,.0f} rows/s"
    return f"{name}: batch {progress.batchId}, {rows} in {seconds:.1f} s{rate}, {lag}"


def behind(progress: StreamingQueryProgress) -> int | None:
    """Return the lag in offsets; None if Spark does not report the sources' ends."""
    total = 0
    for source in progress.sources:
        ends = _offsets(source.endOffset)
        if ends and (source.latestOffset or "null") == "null":
            return None
        latest = _offsets(source.latestOffset)
        total += sum(max(at - ends.get(where, 0), 0) for where, at in latest.items())
    return total


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    """Parse a Kafka source's offsets, by topic and partition; {} for another source's."""
    try:
        topics: Any = json.loads(text or "{}")
        return {
            (topic, partition): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}
