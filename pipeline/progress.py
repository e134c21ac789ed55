"""What a streaming query has done lately, for whoever watches the job."""

import json
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pipeline.notice import tell


class Progress(StreamingQueryListener):
    """Tells of each batch of each query: rows, rows per second, offsets that are still behind."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        """All rows so far, by the name of the query."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name.
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name.
        progress = event.progress
        name = progress.name or str(progress.id)
        if not progress.numInputRows:
            return
        self.rows[name] = self.rows.get(name, 0) + progress.numInputRows
        tell(line(name, progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name.
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name.
        pass


def line(name: str, progress: StreamingQueryProgress) -> str:
    """One batch in one line."""
    seconds = progress.batchDuration / 1000
    return (
        f"{name}: batch {progress.batchId}, {progress.numInputRows:,} rows in {seconds:.1f} s, "
        f"{progress.processedRowsPerSecond:,.0f} rows/s, {behind(progress):,} offsets behind"
    )


def behind(progress: StreamingQueryProgress) -> int:
    """Offsets between what the sources have and what has been read of them."""
    total = 0
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
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
