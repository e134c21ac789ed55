"""What a session on one machine is made with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd  # type: ignore[import-untyped]  # Its stubs come apart from it.
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_in_the_python_that_started_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a path that has another Python, or none.
    monkeypatch.setenv("PATH", "/usr/bin")

    def executable(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"python": [sys.executable] * len(frame)})

    rows = spark.range(1).mapInPandas(executable, "python string").collect()
    assert [row.python for row in rows] == [sys.executable]


def test_spark_leaves_failures_to_the_job_unless_more_is_asked_for(spark: SparkSession) -> None:
    from kohort.pipeline import jvm  # noqa: PLC0415
    from kohort.pipeline.session import set_log_level  # noqa: PLC0415

    log4j = jvm.packages(spark).org.apache.logging.log4j

    def speaks(name: str) -> bool:
        return bool(log4j.LogManager.getLogger(f"org.apache.spark.{name}").isErrorEnabled())

    assert speaks("util.SparkUncaughtExceptionHandler")
    assert not speaks("executor.Executor")
    try:
        set_log_level(spark, "WARN")
        assert speaks("executor.Executor")
    finally:
        log4j.core.config.Configurator.reconfigure()
        set_log_level(spark, "ERROR")
    assert not speaks("executor.Executor")
