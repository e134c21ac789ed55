"""What Spark is told of a batch that fails or is stopped, in real streaming queries."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.insight.errors import ReportedError
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LONG = 300_000
"""Characters of a failed job's causes with their stack traces; 10,000 are too many for Spark."""


def fail_at_length(frame: DataFrame) -> None:
    """Fail as a write of the jobs does: Java's exception, and ours in its consequence."""
    from kohort.pipeline.faults import explained  # noqa: PLC0415

    java = frame.sparkSession.sparkContext._jvm
    assert java is not None
    with explained("the table of tests"):
        java.java.lang.Class.forName(f"TheSeventhDisk\n{'x' * LONG}")


@contextmanager
def running(
    spark: SparkSession, place: Path, take: Callable[[DataFrame, int], None]
) -> Iterator[StreamingQuery]:
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1)
        .load()
        .writeStream.option("checkpointLocation", str(place))
        .foreachBatch(take)
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


def test_a_batch_that_fails_at_length_is_told_in_our_words_and_to_spark_in_a_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    from kohort.pipeline.streaming.query import Batches  # noqa: PLC0415

    batches = Batches("a batch", lambda frame, _: fail_at_length(frame))
    with running(spark, tmp_path, batches) as query:
        failure = batches.failure(query)
        with pytest.raises(StreamingQueryException) as told:
            query.awaitTermination()
    assert isinstance(failure, ReportedError)
    assert "the table of tests" in str(failure)
    assert "TheSeventhDisk" in str(failure)
    assert len(str(told.value)) < LONG // 50


def test_what_no_job_foresaw_is_told_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    from kohort.pipeline.streaming.query import Batches  # noqa: PLC0415

    batches = Batches("a batch", lambda _, batch_id: [][batch_id])
    with running(spark, tmp_path, batches) as query:
        failure = batches.failure(query)
    assert isinstance(failure, ReportedError)
    assert str(failure) == "a batch: IndexError: list index out of range"


def test_a_query_that_is_stopped_amid_a_batch_ends_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    from kohort.pipeline.streaming.query import Batches  # noqa: PLC0415

    has_begun = threading.Event()
    said: list[str] = []

    def take(frame: DataFrame, _: int) -> None:
        try:
            fail_at_length(frame)
        finally:
            # It hears of its own failure when it has been stopped already.
            has_begun.set()
            wait_until(lambda: not query.isActive, "it was stopped")

    def overheard(frame: DataFrame, batch_id: int) -> None:
        try:
            batches(frame, batch_id)
        except Exception:
            said.append(traceback.format_exc())
            raise

    batches = Batches("a batch", take)
    with running(spark, tmp_path, overheard) as query:
        assert has_begun.wait(60)
        batches.stop(query)
        assert batches.failure(query) is None
        assert query.exception() is None
    # What Spark makes of it, on a stack of its own size.
    java = spark.sparkContext._jvm
    assert java is not None
    package = java.org.apache.spark.sql.execution.streaming
    if not spark.version.startswith("4.0."):
        package = package.runtime
    execution = package.StreamExecution
    error = java.py4j.Py4JException(said[0])
    assert execution.isInterruptionException(error, spark.sparkContext._jsc.sc())
