"""What a streaming query has done lately, for the user who watches the job."""

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

from kohort.insight.console import announce
from kohort.insight.counting import counted
from kohort.pipeline.metrics import Metrics

LATE_S_MAX: Final = 10.0
"""News that have not come by then will not come: Spark drops some when it has too many."""


QUIET_S_MAX: Final = 10.0
"""A user who waits for longer than this wants to know that something happens."""


class Progress(StreamingQueryListener):
    """Tells of each batch of each query: rows, rows per second, offsets that are still behind."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self.rows: dict[str, int] = {}
        """All rows so far, by the name of the query."""
        self.quarantined: dict[str, int] = {}
        """How many of them are in quarantine, by topic."""
        self._uncounted: dict[tuple[str, int], int] = {}
        """Rows by topic and batch, of batches whose progress is not reported yet."""
        self._announced_s = time.monotonic()
        self._ended: set[str] = set()
        self._has_ended = threading.Condition()

    @contextmanager
    def listening(self, spark: SparkSession) -> Iterator[None]:
        """A context in which it listens to the session's queries."""
        spark.streams.addListener(self)
        try:
            yield
        finally:
            # The session may be the caller's, who goes on with it.
            spark.streams.removeListener(self)

    def wait_reported(self, query: StreamingQuery) -> None:
        """Returns when all has been told of a query that has ended: its news come a bit later."""
        with self._has_ended:
            self._has_ended.wait_for(lambda: str(query.runId) in self._ended, LATE_S_MAX)

    def announce_if_quiet(self, spark: SparkSession, doing: str) -> None:
        """What the job is at and how far the stages are, if nothing was told for a while."""
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
        self.rows[name] = self.rows.get(name, 0) + rows
        self._announced_s = time.monotonic()
        announce(line(name, progress, rows))
        if self._metrics is not None:
            self._metrics.batch(
                topic,
                rows,
                progress.batchDuration / 1000,
                behind(progress),
            )

    def add_quarantined(self, topic: str, count: int) -> None:
        """Count records of a batch whose values could not be decoded: they are in quarantine."""
        self.quarantined[topic] = self.quarantined.get(topic, 0) + count
        if self._metrics is not None:
            self._metrics.quarantined(topic, "undecodable", count)

    def add_uncounted(self, topic: str, batch_id: int, count: int) -> None:
        """Note the rows of a batch that the job has read by itself, which Spark does not count."""
        self._uncounted[topic, batch_id] = count

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name.
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name.
        with self._has_ended:
            self._ended.add(str(event.runId))
            self._has_ended.notify_all()


class Pulse:
    """What the job is at, told every ten seconds."""

    def __init__(self) -> None:
        self.doing = ""

    def report(self, doing: str) -> None:
        """Note what the job begins to do."""
        self.doing = doing


@contextmanager
def pulse(spark: SparkSession) -> Iterator[Pulse]:
    """Tells every ten seconds how far it is, while the work in it goes on."""
    over = threading.Event()
    now = Pulse()

    def beat() -> None:
        # If Spark is gone, the code that works with it says so.
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
    """The line for topics that are landed now, with the number of those that follow."""
    doing = f"landing {', '.join(topics)}"
    return f"{doing}, {counted(to_come, 'topic')} to come" if to_come else doing


def announce_stages(spark: SparkSession, doing: str = "") -> None:
    """How far the stages are that run now, and what they are for."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
    tasks = sum(stage.numTasks for stage in stages if stage is not None)
    tasks_text = f"{done} of {tasks} tasks are done" if tasks else ""
    if doing or tasks_text:
        announce("working: " + ", ".join(part for part in (doing, tasks_text) if part))


def line(name: str, progress: StreamingQueryProgress, row_count: int) -> str:
    """One batch in one line."""
    seconds = progress.batchDuration / 1000
    count = behind(progress)
    lag = "how far behind is unknown" if count is None else f"{counted(count, 'offset')} behind"
    rows = counted(row_count, "row")
    rate = row_count / max(seconds, 0.001)
    return f"{name}: batch {progress.batchId}, {rows} in {seconds:.1f} s, {rate:,.0f} rows/s, {lag}"


def behind(progress: StreamingQueryProgress) -> int | None:
    """Offsets between what the sources have and what has been read of them; None where Spark does
    not say what they have, as of a batch that is repeated after a kill.
    """
    total = 0
    for source in progress.sources:
        ends = _offsets(source.endOffset)
        if ends and (source.latestOffset or "null") == "null":
            return None
        latest = _offsets(source.latestOffset)
        total += sum(max(at - ends.get(where, 0), 0) for where, at in latest.items())
    return total


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    """Kafka's offsets in a progress report, by topic and partition; nothing from other sources."""
    try:
        topics: Any = json.loads(text or "{}")
        return {
            (topic, partition): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}
