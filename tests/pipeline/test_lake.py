"""The ways in which tables change: repeating one of them changes nothing more."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as replace_fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kohort.insight.errors import ReportedError
from kohort.insight.tables.columns import TEXT, WHOLE, Column, Table
from kohort.pipeline.arrow import from_columns, schema_of, spark_schema
from kohort.pipeline.catalog import Namespace
from kohort.pipeline.delta.lake import DeltaLake
from kohort.pipeline.errors import ConflictError
from kohort.pipeline.faults import explained
from tests.pipeline.frames import assert_rows


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> DeltaLake:
    return DeltaLake(spark, str(tmp_path / "lake"))


def test_a_first_write_that_failed_halfway_is_mended_by_the_next(
    spark: SparkSession, lake: DeltaLake
) -> None:
    good = spark.range(4, numPartitions=2)
    bad = good.select(
        f.when(f.col("id") < 2, f.col("id")).otherwise(f.raise_error(f.lit("no more"))).alias("id")
    )
    ids = itertools.count()

    def append(frame: DataFrame, name: str) -> None:
        lake.append_once(frame, name, app_id="a", batch_id=next(ids))

    with pytest.raises(ReportedError):
        append(bad, "append")
    left = list(Path(lake.path("append")).rglob("*.parquet"))
    assert left, "nothing was left half-written, so this shows nothing"
    append(good, "append")
    append(good, "append")
    assert_rows(lake.read("append"), 2 * [(0,), (1,), (2,), (3,)])
    with pytest.raises(ReportedError):
        append(bad, "created")
    lake.create("created", good.schema)
    assert_rows(lake.read("created"), [])


def test_a_table_that_was_not_made_to_its_end_is_made_by_the_next(
    spark: SparkSession, lake: DeltaLake
) -> None:
    Path(lake.path("numbers"), "_delta_log").mkdir(parents=True)
    lake.create("numbers", spark.range(1).schema)
    assert_rows(lake.read("numbers"), [])


NUMBERS = Table(
    "numbers",
    "A row for each number.",
    ("cluster_id", "group", "number"),
    (Column("cluster_id", TEXT, ""), Column("group", TEXT, ""), Column("number", WHOLE, "")),
)


def grouped(*given: tuple[str, int]) -> pa.Table:
    columns = [["c"] * len(given), *zip(*given, strict=True)] if given else [[], [], []]
    return from_columns(NUMBERS, columns)


def replace(
    lake: DeltaLake, *given: tuple[str, int], groups: list[str] | None, table: Table | None = None
) -> bool:
    listed = None if groups is None else [("c", group) for group in groups]
    if table is not None:
        lake.create("numbers", spark_schema(table))
    with explained("numbers"):
        rows = [grouped(*given)]
        return lake.begin("numbers").replace(rows, schema_of(NUMBERS), listed, table)


def append(lake: DeltaLake, *given: tuple[str, int]) -> None:
    with explained("numbers"):
        lake.begin("numbers").append(grouped(*given))


def read(lake: DeltaLake, *groups: str) -> list[tuple[Any, ...]]:
    """Without Spark."""
    listed = [("c", group) for group in groups] or None
    found = lake.begin("numbers").read(schema_of(NUMBERS), listed)
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def files_of(lake: DeltaLake, name: str) -> set[str]:
    return {Path(path).name for path in lake.read(name).inputFiles()}


def test_rows_of_a_group_are_replaced_and_files_of_others_left_alone(lake: DeltaLake) -> None:
    assert replace(lake, ("a", 1), ("b", 2), groups=None, table=NUMBERS)
    append(lake, ("x", 3), ("y", 4))
    before = files_of(lake, "numbers")
    assert replace(lake, ("b", 5), ("b", 6), groups=["b"])
    now = [("c", "a", 1), ("c", "b", 5), ("c", "b", 6), ("c", "x", 3), ("c", "y", 4)]
    # Python's reading of the table and Spark's.
    assert read(lake) == now
    assert_rows(lake.read("numbers"), now)
    assert read(lake, "b", "y") == [now[1], now[2], now[4]]
    assert len(before & files_of(lake, "numbers")) == 1
    # What is the same is not written again.
    version = lake.version("numbers")
    assert not replace(lake, ("b", 5), ("b", 6), groups=["b"])
    assert not replace(lake, groups=["unknown"])
    assert lake.version("numbers") == version
    assert replace(lake, groups=["b", "x"])
    assert read(lake) == [now[0], now[4]]
    assert_rows(lake.read("numbers"), [now[0], now[4]])


def test_a_change_fails_if_the_table_has_changed_since_the_look(lake: DeltaLake) -> None:
    replace(lake, ("a", 1), groups=None, table=NUMBERS)
    early, late, replacing = (lake.begin("numbers") for _ in range(3))
    early.append(grouped(("a", 2)))
    conflict = pytest.raises(ConflictError, match="another run changed it at the same time")
    with conflict, explained("numbers"):
        late.append(grouped(("a", 2)))
    with conflict, explained("numbers"):
        replacing.replace([grouped(("a", 3))], schema_of(NUMBERS), [("c", "a")])
    assert_rows(lake.read("numbers"), [("c", "a", 1), ("c", "a", 2)])


def test_replacing_all_rows_conflicts_with_a_compaction(lake: DeltaLake) -> None:
    replace(lake, ("a", 1), groups=None, table=NUMBERS)
    append(lake, ("b", 2))
    replacing = lake.begin("numbers")
    lake.compact("numbers")
    with pytest.raises(ConflictError), explained("numbers"):
        replacing.replace([grouped(("a", 3), ("b", 4))], schema_of(NUMBERS), None)
    assert read(lake) == [("c", "a", 1), ("c", "b", 2)]


@pytest.mark.long
def test_concurrent_compactions_keep_each_row_once(lake: DeltaLake) -> None:
    replace(lake, groups=None, table=NUMBERS)
    rows = []
    with ThreadPoolExecutor() as pool:
        for number in range(8):
            rows += [("c", f"g{number}", number), ("c", f"h{number}", number)]
            append(lake, rows[-2][1:])
            append(lake, rows[-1][1:])
            for done in [pool.submit(lake.compact, "numbers") for _ in range(3)]:
                done.result()
            assert read(lake) == sorted(rows)
            assert len(files_of(lake, "numbers")) == 1


@pytest.mark.long
def test_small_files_that_were_added_are_put_together_and_are_no_news(
    spark: SparkSession, lake: DeltaLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.pipeline.delta.lake.SMALL_FILES_MAX", 3)
    replace(lake, groups=None, table=NUMBERS)
    added = [(f"g{7 - number}", number) for number in range(7)]
    counts = []
    for one in added:
        append(lake, one)
        lake.compact_appended("numbers")
        counts.append(len(files_of(lake, "numbers")))
    # The fourth is put together with those before it.
    assert counts == [1, 2, 3, 1, 2, 3, 1]
    expected = sorted(("c", *one) for one in added)
    assert read(lake) == expected
    assert_rows(lake.read("numbers"), expected)
    assert read(lake, "g6") == [("c", "g6", 1)]
    # Who follows the table sees each row once, and no row that was changed.
    path = lake.path("numbers")
    query = (
        spark.readStream.format("delta")
        .option("startingVersion", 1)
        .load(path)
        .writeStream.format("memory")
        .queryName("numbers_followed")
        .option("checkpointLocation", f"{lake.root}/_checkpoints/numbers")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert_rows(spark.sql("SELECT `group`, number FROM numbers_followed"), added)


@pytest.mark.long
def test_columns_that_are_not_known_here_stay_when_rows_are_added(
    spark: SparkSession, lake: DeltaLake
) -> None:
    other = replace_fields(NUMBERS, columns=(*NUMBERS.columns, Column("name", TEXT, "")))
    lake.create("numbers", spark_schema(other))
    theirs = spark.createDataFrame([("c", "a", 1, "one")], spark_schema(other))
    lake.merge_new(theirs, "numbers", on=NUMBERS.key)
    for number in range(2, 5):
        append(lake, ("a", number))
    lake.compact("numbers")
    expected = [("c", "a", 1, "one"), *(("c", "a", number, None) for number in range(2, 5))]
    assert_rows(lake.read("numbers"), expected)


@pytest.mark.long
def test_columns_of_another_version_make_way_for_those_of_now(lake: DeltaLake) -> None:
    other = replace_fields(NUMBERS, columns=(*NUMBERS.columns, Column("name", TEXT, "")))
    replace(lake, ("a", 1), groups=None, table=NUMBERS)
    table_id = lake.create("numbers", spark_schema(NUMBERS))
    assert not lake.begin("numbers").fits(other)
    rows = from_columns(other, [["c"], ["b"], [2], ["two"]])
    with explained("numbers"):
        lake.begin("numbers").replace([rows], schema_of(other), None, other)
    assert lake.begin("numbers").fits(other)
    assert_rows(lake.read("numbers"), [("c", "b", 2, "two")])
    assert lake.create("numbers", spark_schema(other)) == table_id


@pytest.mark.long
def test_a_table_of_before_gets_the_columns_that_it_lacks(
    spark: SparkSession, lake: DeltaLake
) -> None:
    old = spark.createDataFrame([(1,)], "number int")
    new = spark.createDataFrame([(2, "two")], "number int, name string")
    lake.append_once(old, "numbers", app_id="a", batch_id=0)
    lake.create("numbers", new.schema)
    lake.append_once(new, "numbers", app_id="a", batch_id=1)
    assert_rows(lake.read("numbers"), [(1, None), (2, "two")])


@pytest.mark.long
def test_tables_are_entered_in_a_catalog_and_others_there_are_left_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    namespace = Namespace.parse("spark_catalog.lake_of_tests")
    try:
        lake, again = (DeltaLake(spark, str(tmp_path / "lake"), namespace) for _ in range(2))
        for one in (lake, again):
            one.create("land/orders.eu", spark.range(1).schema)
        lake.append_once(spark.range(3), "land/orders.eu", app_id="a", batch_id=0)
        assert spark.table("spark_catalog.lake_of_tests.land_orders_eu").count() == 3
        other = DeltaLake(spark, str(tmp_path / "other"), namespace)
        with pytest.raises(ReportedError, match=r"the catalog has a different .*, at "):
            other.create("land/orders.eu", spark.range(1).schema)
        with pytest.raises(ReportedError, match=r"the catalog has a different .*, at "):
            lake.create("land/orders-eu", spark.range(1).schema)
    finally:
        spark.sql("DROP DATABASE IF EXISTS spark_catalog.lake_of_tests CASCADE")


@pytest.mark.long
def test_old_rows_are_forgotten_by_their_moment(spark: SparkSession, lake: DeltaLake) -> None:
    moments = [datetime.fromtimestamp(second, UTC) for second in (1, 2, 3)]
    frame = spark.createDataFrame([(one,) for one in moments], "at timestamp")
    lake.append_once(frame, "moments", app_id="a", batch_id=0)
    lake.forget("moments", "at", moments[1])
    assert_rows(lake.read("moments").select(f.unix_seconds("at")), [(2,), (3,)])


def test_a_table_that_is_missing_is_named(lake: DeltaLake) -> None:
    assert not lake.exists("rebalances")
    with pytest.raises(ReportedError, match=r"has no table rebalances; run the job"):
        lake.read("rebalances")


def test_a_directory_of_something_else_is_not_taken_for_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1,)], "number int")
    frame.write.parquet(str(tmp_path / "numbers"))
    lake = DeltaLake(spark, str(tmp_path))
    with pytest.raises(ReportedError, match=r"Is that directory a lake"):
        lake.append_once(frame, "numbers", app_id="a", batch_id=0)
    with pytest.raises(ReportedError, match=r"Is that directory a lake"):
        lake.merge_new(frame, "numbers", on=["number"])


def test_a_root_that_is_a_file_is_no_lake(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    lake = DeltaLake(spark, str(tmp_path / "lake"))
    frame = spark.createDataFrame([(1,)], "number int")
    with pytest.raises(ReportedError, match=r"Is that directory a lake"):
        lake.append_once(frame, "numbers", app_id="a", batch_id=0)
