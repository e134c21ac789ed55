"""What lakes of each format promise alike: a batch is there once, a merge adds what is new."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.frames import assert_rows
from tests.pipeline.lakes import lake_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.pipeline.lake import Lake


@pytest.fixture(
    params=["delta", pytest.param("iceberg", marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def lake(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    return lake_of(spark, tmp_path / "lake", request.param)


def test_a_batch_that_is_appended_twice_is_there_once(spark: SparkSession, lake: Lake) -> None:
    for batch_id, number in [(0, 1), (0, 1), (1, 2), (0, 1), (1, 2)]:
        frame = spark.createDataFrame([(number,)], "number int")
        lake.append_once(frame, "land/numbers", app_id="a", batch_id=batch_id)
    assert_rows(lake.read("land/numbers"), [(1,), (2,)])


@pytest.mark.long
def test_another_stream_of_batches_counts_for_itself(spark: SparkSession, lake: Lake) -> None:
    frame = spark.createDataFrame([(1,)], "number int")
    lake.append_once(frame, "numbers", app_id="a", batch_id=0)
    lake.append_once(frame, "numbers", app_id="b", batch_id=0)
    assert_rows(lake.read("numbers"), [(1,), (1,)])


@pytest.mark.long
def test_columns_are_added_and_empty_in_older_rows(spark: SparkSession, lake: Lake) -> None:
    old = spark.createDataFrame([(1,)], "number int")
    new = spark.createDataFrame([(2, "two")], "number int, name string")
    lake.append_once(old, "numbers", app_id="a", batch_id=0)
    lake.append_once(new, "numbers", app_id="a", batch_id=1)
    assert_rows(lake.read("numbers"), [(1, None), (2, "two")])


def test_a_merge_adds_new_keys_only_and_each_once(spark: SparkSession, lake: Lake) -> None:
    columns = "g string, n int, v string"
    first = spark.createDataFrame([("a", 1, "old"), (None, 2, "old")], columns)
    again = spark.createDataFrame(
        [("a", 1, "new"), (None, 2, "new"), ("b", 1, "new"), ("b", 1, "new")], columns
    )
    for frame in (first, again, again):
        lake.merge_new(frame, "events", on=["g", "n"])
    assert_rows(lake.read("events"), [("a", 1, "old"), ("b", 1, "new"), (None, 2, "old")])
