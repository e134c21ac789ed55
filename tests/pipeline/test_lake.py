"""The ways in which tables change: repeating one of them changes nothing more."""

import itertools
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kohort.pipeline.errors import ConflictError, PipelineError
from kohort.pipeline.faults import explained
from kohort.pipeline.lake import Lake
from kohort.pipeline.replace_transaction import SMALL_FILES_MAX, Groups, ReplaceTransaction


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, str(tmp_path / "lake"))


def rows(lake: Lake, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in lake.read(name).collect())


def test_a_batch_that_is_appended_twice_is_there_once(spark: SparkSession, lake: Lake) -> None:
    for batch_id, number in [(0, 1), (0, 1), (1, 2), (0, 1), (1, 2)]:
        frame = spark.createDataFrame([(number,)], "number int")
        lake.append_once(frame, "land/numbers", app_id="a", batch_id=batch_id)
    assert rows(lake, "land/numbers") == [(1,), (2,)]


def test_another_stream_of_batches_counts_for_itself(spark: SparkSession, lake: Lake) -> None:
    frame = spark.createDataFrame([(1,)], "number int")
    lake.append_once(frame, "numbers", app_id="a", batch_id=0)
    lake.append_once(frame, "numbers", app_id="b", batch_id=0)
    assert rows(lake, "numbers") == [(1,), (1,)]


def test_columns_are_added_and_empty_in_older_rows(spark: SparkSession, lake: Lake) -> None:
    old = spark.createDataFrame([(1,)], "number int")
    new = spark.createDataFrame([(2, "two")], "number int, name string")
    lake.append_once(old, "numbers", app_id="a", batch_id=0)
    lake.append_once(new, "numbers", app_id="a", batch_id=1)
    assert rows(lake, "numbers") == [(1, None), (2, "two")]


def test_a_merge_adds_new_keys_only_and_each_once(spark: SparkSession, lake: Lake) -> None:
    first = spark.createDataFrame([("a", 1, "old"), (None, 2, "old")], "g string, n int, v string")
    again = spark.createDataFrame(
        [("a", 1, "new"), (None, 2, "new"), ("b", 1, "new"), ("b", 1, "new")],
        "g string, n int, v string",
    )
    for frame in (first, again, again):
        lake.merge_new(frame, "events", on=["g", "n"])
    found = {tuple(row) for row in lake.read("events").collect()}
    assert lake.read("events").count() == 3
    assert found == {("a", 1, "old"), (None, 2, "old"), ("b", 1, "new")}


def test_a_first_write_that_failed_halfway_is_mended_by_the_next(
    spark: SparkSession, lake: Lake
) -> None:
    good = spark.range(4, numPartitions=2)
    bad = good.select(
        f.when(f.col("id") < 2, f.col("id")).otherwise(f.raise_error(f.lit("no more"))).alias("id")
    )
    ids = itertools.count()

    def append(frame: DataFrame, name: str) -> None:
        lake.append_once(frame, name, app_id="a", batch_id=next(ids))

    for write in (lake.overwrite, append):
        name = write.__name__
        with pytest.raises(PipelineError):
            write(bad, name)
        left = list(Path(lake.path(name)).rglob("*.parquet"))
        assert left, "nothing was left half-written, so this shows nothing"
        write(good, name)
        write(good, name)
    assert rows(lake, "overwrite") == [(0,), (1,), (2,), (3,)]
    assert rows(lake, "append") == sorted(2 * [(0,), (1,), (2,), (3,)])
    with pytest.raises(PipelineError):
        lake.overwrite(bad, "created")
    lake.create("created", good.schema)
    assert rows(lake, "created") == []


def test_a_first_write_leaves_alone_what_another_run_writes_first(
    spark: SparkSession, lake: Lake
) -> None:
    class Slow(Lake):
        """Another run begins and ends while this one has begun."""

        def _check_place(self, name: str) -> bool:
            is_there = super()._check_place(name)
            begun = Path(lake.path(name), "_first_write")
            if not is_there and not begun.exists():
                begun.parent.mkdir(parents=True)
                begun.touch()
                (begun.parent / "mine.parquet").touch()
                lake.overwrite(spark.range(3), name)
                assert (begun.parent / "mine.parquet").exists()
            return is_there

    Slow(spark, lake.root).overwrite(spark.range(4), "numbers")
    assert rows(lake, "numbers") == [(0,), (1,), (2,), (3,)]


def test_a_first_write_of_another_run_may_end_while_it_is_looked_at(
    spark: SparkSession, lake: Lake
) -> None:
    class Slow(Lake):
        """Another run's rows become a table between two looks of this one."""

        def _is_begun(self, name: str) -> bool:
            if not lake.exists(name):
                lake.overwrite(spark.range(3), name)
            return super()._is_begun(name)

    begun = Path(lake.path("numbers"), "_first_write")
    begun.parent.mkdir(parents=True)
    begun.touch()
    Slow(spark, lake.root).overwrite(spark.range(4), "numbers")
    assert rows(lake, "numbers") == [(0,), (1,), (2,), (3,)]


def test_a_table_that_was_not_made_to_its_end_is_made_by_the_next(
    spark: SparkSession, lake: Lake
) -> None:
    Path(lake.path("numbers"), "_delta_log").mkdir(parents=True)
    lake.create("numbers", spark.range(1).schema)
    assert rows(lake, "numbers") == []


def test_an_append_fails_that_would_repeat_what_was_added_since_the_look(
    spark: SparkSession, lake: Lake
) -> None:
    one = spark.createDataFrame([(1,)], "number int")
    lake.create("numbers", one.schema)
    early, late = lake.begin_append("numbers"), lake.begin_append("numbers")
    lake.append(one, "numbers", early)
    with pytest.raises(ConflictError, match="another run changed it at the same time"):
        lake.append(one, "numbers", late)
    # Whoever merges has looked as well.
    transaction = lake.begin_append("numbers")
    lake.merge_new(spark.createDataFrame([(2,)], "number int"), "numbers", on=["number"])
    with pytest.raises(ConflictError):
        lake.append(one, "numbers", transaction)
    lake.append(
        spark.createDataFrame([(3,)], "number int"), "numbers", lake.begin_append("numbers")
    )
    assert rows(lake, "numbers") == [(1,), (2,), (3,)]


def grouped(spark: SparkSession, *rows: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(
        [("c", group, number) for group, number in rows],
        "cluster_id string, group string, number int",
    )


def files_of(lake: Lake, name: str) -> set[str]:
    return {Path(path).name for path in lake.read(name).inputFiles()}


def test_rows_of_a_group_are_replaced_and_files_of_others_left_alone(
    spark: SparkSession, lake: Lake
) -> None:
    lake.overwrite(grouped(spark, ("a", 1), ("b", 2)).coalesce(1), "numbers")
    lake.append(
        grouped(spark, ("x", 3), ("y", 4)).coalesce(1), "numbers", lake.begin_append("numbers")
    )
    before = files_of(lake, "numbers")
    one = Groups(grouped(spark, ("b", 0)).select("cluster_id", "group"), {("c", "b")})
    lake.replace(grouped(spark, ("b", 5), ("b", 6)), "numbers", one, are_many=False)
    assert rows(lake, "numbers") == [
        ("c", "a", 1),
        ("c", "b", 5),
        ("c", "b", 6),
        ("c", "x", 3),
        ("c", "y", 4),
    ]
    assert len(before & files_of(lake, "numbers")) == 1


@pytest.mark.long
def test_rows_of_groups_that_have_none_now_or_had_none_are_replaced_too(
    spark: SparkSession, lake: Lake
) -> None:
    lake.overwrite(grouped(spark, ("a", 1), ("b", 2), ("x", 3), ("y", 4)), "numbers")
    one = Groups(grouped(spark, ("b", 0)).select("cluster_id", "group"), {("c", "b")})
    lake.replace(grouped(spark), "numbers", one, are_many=False)
    version = lake.version("numbers")
    unknown = Groups(grouped(spark, ("z", 0)).select("cluster_id", "group"), {("c", "z")})
    lake.replace(grouped(spark), "numbers", unknown, are_many=False)
    assert rows(lake, "numbers") == [("c", "a", 1), ("c", "x", 3), ("c", "y", 4)]
    assert lake.version("numbers") == version
    # More of them than a list has names for.
    many = Groups(grouped(spark, ("a", 0), ("x", 0)).select("cluster_id", "group"), None)
    lake.replace(grouped(spark, ("x", 7)), "numbers", many, are_many=True)
    assert rows(lake, "numbers") == [("c", "x", 7), ("c", "y", 4)]


@pytest.mark.long
def test_a_replacement_fails_of_rows_that_changed_meanwhile(
    spark: SparkSession, lake: Lake
) -> None:
    lake.overwrite(grouped(spark, ("a", 1)), "numbers")
    path = lake.path("numbers")
    groups = Groups(grouped(spark, ("a", 0)).select("cluster_id", "group"), {("c", "a")})
    late = ReplaceTransaction(spark, path)
    lake.replace(grouped(spark, ("a", 2)), "numbers", groups, are_many=False)
    with pytest.raises(ConflictError), explained("the table"):
        late.replace(grouped(spark, ("a", 3)), groups, are_many=False)
    assert rows(lake, "numbers") == [("c", "a", 2)]


@pytest.mark.long
def test_many_small_files_are_put_together_on_the_occasion(spark: SparkSession, lake: Lake) -> None:
    lake.create("numbers", grouped(spark).schema)
    names = [f"g{number:02}" for number in range(SMALL_FILES_MAX + 2)]
    for name in names:
        one = Groups(grouped(spark, (name, 0)).select("cluster_id", "group"), {("c", name)})
        lake.replace(grouped(spark, (name, 1)), "numbers", one, are_many=False)
    assert rows(lake, "numbers") == [("c", name, 1) for name in names]
    assert len(files_of(lake, "numbers")) <= SMALL_FILES_MAX


def test_a_table_of_before_gets_the_columns_that_it_lacks(spark: SparkSession, lake: Lake) -> None:
    old = spark.createDataFrame([(1,)], "number int")
    new = spark.createDataFrame([(2, "two")], "number int, name string")
    lake.overwrite(old, "numbers")
    lake.create("numbers", new.schema)
    lake.append(new, "numbers", lake.begin_append("numbers"))
    assert rows(lake, "numbers") == [(1, None), (2, "two")]


def test_overwriting_replaces_rows_and_columns(spark: SparkSession, lake: Lake) -> None:
    lake.overwrite(spark.createDataFrame([(1,)], "number int"), "numbers")
    lake.overwrite(spark.createDataFrame([("two",)], "name string"), "numbers")
    assert rows(lake, "numbers") == [("two",)]


def test_a_table_that_is_missing_is_named(lake: Lake) -> None:
    assert not lake.exists("rebalances")
    with pytest.raises(PipelineError, match=r"has no table rebalances; has the job run"):
        lake.read("rebalances")


def test_a_directory_of_something_else_is_not_taken_for_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1,)], "number int")
    frame.write.parquet(str(tmp_path / "numbers"))
    lake = Lake(spark, str(tmp_path))
    with pytest.raises(PipelineError, match=r"Is that directory a lake"):
        lake.append_once(frame, "numbers", app_id="a", batch_id=0)
    with pytest.raises(PipelineError, match=r"Is that directory a lake"):
        lake.merge_new(frame, "numbers", on=["number"])


def test_a_root_that_is_a_file_is_no_lake(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    lake = Lake(spark, str(tmp_path / "lake"))
    frame = spark.createDataFrame([(1,)], "number int")
    with pytest.raises(PipelineError, match=r"Is that directory a lake"):
        lake.append_once(frame, "numbers", app_id="a", batch_id=0)
