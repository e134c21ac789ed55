"""Calls a function for each batch of a streaming query, and keeps its exceptions.

Spark receives the complete traceback of a Python exception as text. When the query is stopped,
Spark searches that text for an interruption with a regular expression that recurses for each
character. Stack traces of a failed job, some 100 kB, overflow the stack and kill the query's
thread. So the exception is kept here, and Spark receives a single line.
"""

from collections.abc import Callable
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from kohort.insight.errors import ReportedError
from kohort.pipeline.faults import explain

_FAILED: Final = "the batch failed; the job that runs this query reports the reason"

_INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling stop: "
    "java.lang.InterruptedException"
)
"""The shortest text that Spark recognizes as an interruption. Other texts make Spark log a stack
trace at each stop."""


class Batches:
    """The function that a query passes to `foreachBatch`, and its failure."""

    def __init__(self, what: str, handle_batch: Callable[[DataFrame, int], None]) -> None:
        """`handle_batch` is called with each batch and its number; `what` names it."""
        self._what = what
        self._handle_batch = handle_batch
        self._is_stopped = False
        self._failure: ReportedError | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Handle a batch. If that fails, raise another exception, of one line, outside the `except`
        clause: py4j would send the whole context of the first one to the JVM.
        """
        try:
            self._handle_batch(frame, batch_id)
        except Exception as error:  # noqa: BLE001 - reported by `failure`.
            text = self._store_failure(error)
        else:
            return
        raise RuntimeError(text)

    def stop(self, query: StreamingQuery) -> None:
        """Stop the query, during a batch if necessary; the next run repeats that batch."""
        if query.isActive:
            self._is_stopped = True
        query.stop()

    def failure(self, query: StreamingQuery) -> ReportedError | PySparkException | None:
        """Return why an ended query failed: the exception of a batch, else Spark's.

        None if it ended normally, or was stopped.
        """
        try:
            query.awaitTermination()
        except PySparkException as error:
            if self._failure is not None:
                return self._failure
            return None if self._is_stopped else error
        return None

    def _store_failure(self, error: Exception) -> str:
        if self._is_stopped:
            return _INTERRUPTED
        if not isinstance(error, ReportedError):
            cause, error = error, explain(self._what, error)
            error.__cause__ = cause
        self._failure = error
        return _FAILED
