"""What Spark calls for each batch of a streaming query, and why such a query ended.

Of an exception in Python, Spark gets the text of its whole traceback. When a query is stopped,
Spark searches that text for signs of an interruption, by a regular expression that recurses for
each character: a failed job's stack traces from Java, some 100 kB with all causes, overflow the
stack, and the query's thread dies of that. So the exception itself stays here, and Spark gets a
line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from kohort.insight.errors import ReportedError
from kohort.pipeline.faults import explain

_FAILED: Final = "the batch failed, and the job that runs this query knows why"

_INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling stop: "
    "java.lang.InterruptedException"
)
"""The least that Spark takes for an interruption. Of anything else, a log4j that is not ours tells
with a stack trace, on each stop.
"""


class Batches:
    """The function that one query gives to `foreachBatch`, and what came of its batches."""

    def __init__(self, what: str, handle_batch: Callable[[DataFrame, int], None]) -> None:
        """`take` gets each batch and its number; `what` is what its failures are about."""
        self._what = what
        self._handle_batch = handle_batch
        self._is_stopped = False
        self._failure: ReportedError | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Raises a line for Spark, out of any context: py4j would send that along."""
        try:
            self._handle_batch(frame, batch_id)
        except Exception as error:  # noqa: BLE001 - told by `failure`, whatever it is.
            text = self._store_failure(error)
        else:
            return
        raise RuntimeError(text)

    def stop(self, query: StreamingQuery) -> None:
        """Ends the query, amid a batch if need be; the next run does that one again."""
        if query.isActive:
            self._is_stopped = True
        query.stop()

    def failure(self, query: StreamingQuery) -> ReportedError | PySparkException | None:
        """Why a query that is over failed: what a batch raised, else what Spark says.

        None if it ended in order, or because it was stopped.
        """
        try:
            query.awaitTermination()
        except PySparkException as error:
            if self._failure is not None:
                return self._failure
            return None if self._is_stopped else error
        return None

    def _store_failure(self, error: Exception) -> str:
        """Returns what Spark is told."""
        if self._is_stopped:
            return _INTERRUPTED
        if not isinstance(error, ReportedError):
            cause, error = error, explain(self._what, error)
            error.__cause__ = cause
        self._failure = error
        return _FAILED
