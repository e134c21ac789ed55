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
