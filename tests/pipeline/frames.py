"""Rows of data frames, compared by Spark's own `assertDataFrameEqual`, which shows what differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.pipeline.topics import Row


def assert_rows(frame: DataFrame, expected: Iterable[Sequence[object]]) -> None:
    """Check that the frame has exactly these rows, in any order.

    Spark would forgive a row that is too short, and floats that are about the same.
    """
    from pyspark.sql import Row  # noqa: PLC0415 - an extra.
    from pyspark.testing import assertDataFrameEqual  # noqa: PLC0415

    names, rows = frame.columns, [tuple(row) for row in expected]
    assert {len(row) for row in rows} <= {len(names)}, f"expected rows are not of {names}"
    made = Row(*names)
    assertDataFrameEqual(frame, [made(*row) for row in rows], rtol=0, atol=0)


def assert_records(frame: DataFrame, expected: Iterable[Row]) -> None:
    """Check that a frame of Kafka's records has exactly these, which are as `Topics.read` has them.

    Where there are no headers, Spark has null.
    """
    rows = [(*row[:5], list(row[5]) or None) for row in expected]
    assert_rows(records(frame), rows)


def records(frame: DataFrame) -> DataFrame:
    """The columns that `Topics.read` has."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra.

    at = f.unix_millis("timestamp").alias("timestamp_ms")
    return frame.select("partition", "offset", at, "key", "value", "headers")
