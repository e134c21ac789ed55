"""A job's metrics for Prometheus: over HTTP, or in a file for node_exporter.

Continuous jobs are scraped (`--metrics-port`). Jobs that end write a file (`--metrics-file`), which
is rewritten after each batch.
"""

import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    start_http_server,
    write_to_textfile,
)

from kohort.pipeline.errors import UnavailableError

_LABELS: Final = ("job", "topic")


class Metrics:
    """The counters of one job; exported only after `serve` or `write_into`."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._file: Path | None = None
        self._registry = registry = CollectorRegistry()
        counter = partial(Counter, labelnames=_LABELS, registry=registry)
        gauge = partial(Gauge, labelnames=_LABELS, registry=registry)
        self._rows = counter("kohort_pipeline_rows", "Records read.")
        self._batches = counter("kohort_pipeline_batches", "Batches completed.")
        self._seconds = counter("kohort_pipeline_batch_seconds", "Time spent on batches.")
        self._behind = gauge("kohort_pipeline_behind_offsets", "Lag in offsets at the last batch.")
        self._last = gauge("kohort_pipeline_last_batch_timestamp_seconds", "End of the last batch.")
        self._quarantined = Counter(
            "kohort_pipeline_quarantined",
            "Quarantined records, by reason.",
            (*_LABELS, "reason"),
            registry=registry,
        )

    def serve(self, port: int) -> None:
        """Serve the metrics on this port. Raises UnavailableError."""
        try:
            start_http_server(port, registry=self._registry)
        except OSError as error:
            raise UnavailableError(f"--metrics-port {port}: {error.strerror}") from error

    def write_into(self, path: Path) -> None:
        """Write the metrics to this file now and after each batch. Raises UnavailableError."""
        self._file = path
        try:
            self._write()
        except OSError as error:
            raise UnavailableError(f"--metrics-file {path}: {error.strerror}") from error

    def batch(self, topic: str, rows: int, seconds: float, behind: int | None = None) -> None:
        """Count a batch; `behind` is None if the lag is unknown."""
        labels = (self._job, topic)
        self._rows.labels(*labels).inc(rows)
        self._batches.labels(*labels).inc()
        self._seconds.labels(*labels).inc(seconds)
        self._last.labels(*labels).set(time.time())
        if behind is not None:
            self._behind.labels(*labels).set(behind)
        # A failed write does not stop the job; monitoring sees that the file is old.
        with suppress(OSError):
            self._write()

    def quarantined(self, topic: str, reason: str, count: int) -> None:
        self._quarantined.labels(self._job, topic, reason).inc(count)

    def _write(self) -> None:
        if self._file is not None:
            write_to_textfile(os.fspath(self._file), self._registry)
