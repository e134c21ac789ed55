"""A lake of Iceberg tables: no change is there twice, and jobs fill it as they do Delta's."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from pyspark.testing import assertDataFrameEqual

from kohort.insight.errors import ReportedError
from kohort.insight.tables.columns import MOMENT, TEXT, WHOLE, Column, Table
from kohort.insight.tables.findings import FINDINGS
from kohort.insight.tables.history import HISTORY
from kohort.pipeline.arrow import from_columns, schema_of, spark_schema
from kohort.pipeline.errors import ConflictError
from kohort.pipeline.rebalances.findings import Findings, Thresholds
from tests.pipeline.events import avoided, line, member, rebalance, records, take
from tests.pipeline.frames import assert_rows
from tests.pipeline.lakes import lake_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.groups.history.model import HistoryRecord
    from kohort.pipeline.iceberg.lake import IcebergLake
    from kohort.pipeline.lake import Lake
    from tests.pipeline.conftest import Pipeline
    from tests.pipeline.topics import Topics

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

NUMBERS = Table(
    "numbers",
    "A row for each number.",
    ("cluster_id", "group", "number"),
    (Column("cluster_id", TEXT, ""), Column("group", TEXT, ""), Column("number", WHOLE, "")),
)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> IcebergLake:
    return iceberg_lake(spark, tmp_path / "lake")


def iceberg_lake(spark: SparkSession, root: Path) -> IcebergLake:
    return cast("IcebergLake", lake_of(spark, root, "iceberg"))


def numbers(*given: tuple[str, int]) -> pa.Table:
    columns = [["c"] * len(given), *zip(*given, strict=True)] if given else [[], [], []]
    return from_columns(NUMBERS, columns)


def replace(lake: Lake, *given: tuple[str, int], groups: list[str] | None) -> bool:
    chosen = None if groups is None else [("c", group) for group in groups]
    return lake.begin("numbers").replace([numbers(*given)], schema_of(NUMBERS), chosen)


def test_two_runs_that_append_one_batch_at_a_time_have_it_once(
    spark: SparkSession, lake: IcebergLake
) -> None:
    frame = spark.createDataFrame([(1,)], "number int")
    lake.create("numbers", frame.schema)
    others = [iceberg_lake(spark, Path(lake.root)) for _ in range(3)]
    failures: list[BaseException] = []

    def append(one: IcebergLake, app_id: str) -> None:
        try:
            one.append_once(frame, "numbers", app_id=app_id, batch_id=0)
        except BaseException as error:  # noqa: BLE001 - told by the test.
            failures.append(error)

    threads = [
        threading.Thread(target=append, args=(one, app_id))
        for one, app_id in zip(others, ("a", "b", "c"), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert_rows(lake.read("numbers"), [(1,)] * 3)


def test_what_a_kill_left_of_a_batch_is_not_in_the_table(
    spark: SparkSession, lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kohort.pipeline.iceberg.lake as module  # noqa: PLC0415

    frame = spark.createDataFrame([(1,), (2,)], "number int")
    with monkeypatch.context() as patch:
        patch.setattr(module, "_commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lake.append_once(frame, "numbers", app_id="a", batch_id=0)
    left = list(Path(lake.root, "numbers").rglob("*.parquet"))
    assert left, "nothing was left half-written, so this shows nothing"
    assert_rows(lake.read("numbers"), [])
    lake.append_once(frame, "numbers", app_id="a", batch_id=0)
    assert_rows(lake.read("numbers"), [(1,), (2,)])


def test_files_without_the_wanted_offsets_are_not_read(
    spark: SparkSession, lake: IcebergLake
) -> None:
    for batch_id in range(3):
        begin = 10 * batch_id
        frame = spark.range(begin, begin + 10).toDF("offset").coalesce(1)
        lake.append_once(frame, "land/orders", app_id="a", batch_id=batch_id)

    assert len(lake.read("land/orders").inputFiles()) == 3
    wanted = lake.read("land/orders", (12, 15))
    assert len(wanted.inputFiles()) == 1
    assert wanted.where("offset between 12 and 15").count() == 4
    assert lake.read("land/orders", (30, 40)).count() == 0


def test_rows_of_a_group_are_replaced_and_those_of_others_stay(lake: IcebergLake) -> None:
    lake.create(NUMBERS.name, spark_schema(NUMBERS))
    assert replace(lake, ("a", 1), ("b", 1), groups=None)
    assert replace(lake, ("a", 2), ("a", 3), groups=["a"])
    assert_rows(lake.read("numbers"), [("c", "a", 2), ("c", "a", 3), ("c", "b", 1)])
    before = lake.version("numbers")
    assert not replace(lake, ("a", 3), ("a", 2), groups=["a"])
    assert lake.version("numbers") == before
    assert replace(lake, groups=["a"])
    assert_rows(lake.read("numbers"), [("c", "b", 1)])


def test_a_change_fails_if_the_table_has_changed_since_the_look(lake: IcebergLake) -> None:
    lake.create(NUMBERS.name, spark_schema(NUMBERS))
    first, second = lake.begin(NUMBERS.name), lake.begin(NUMBERS.name)
    lake.begin(NUMBERS.name).append(numbers(("b", 1)))
    with pytest.raises(ConflictError):
        first.append(numbers(("a", 1)))
    with pytest.raises(ConflictError):
        second.replace([numbers(("a", 1))], schema_of(NUMBERS), [("c", "a")])
    assert_rows(lake.read("numbers"), [("c", "b", 1)])


def test_columns_of_another_version_make_way_for_those_of_now(lake: IcebergLake) -> None:
    former = Table("numbers", "", ("group",), (Column("group", TEXT, ""), Column("was", TEXT, "")))
    lake.create("numbers", spark_schema(former))
    change = lake.begin("numbers")
    assert not change.fits(NUMBERS)
    assert change.replace([numbers(("a", 1))], schema_of(NUMBERS), None, NUMBERS)
    assert lake.begin("numbers").fits(NUMBERS)
    assert_rows(lake.read("numbers").select("cluster_id", "group", "number"), [("c", "a", 1)])


def test_old_rows_are_forgotten_by_their_moment(lake: IcebergLake) -> None:
    table = Table("moments", "", ("at",), (Column("at", MOMENT, ""),))
    lake.create(table.name, spark_schema(table))
    lake.begin(table.name).append(from_columns(table, [[1_000, 2_000, 3_000]]))
    lake.forget(table.name, "at", datetime.fromtimestamp(2, UTC))
    kept = lake.begin(table.name).read(schema_of(table))["at"].cast(pa.int64()).to_pylist()
    assert kept == [2_000_000, 3_000_000]


def test_a_table_that_is_another_one_is_not_taken_for_the_lakes(
    spark: SparkSession, lake: IcebergLake
) -> None:
    frame = spark.createDataFrame([(1,)], "number int")
    lake.append_once(frame, "land/orders.eu", app_id="a", batch_id=0)
    with pytest.raises(ReportedError, match=r"is used by the lake's table land/orders\.eu"):
        lake.append_once(frame, "land/orders-eu", app_id="b", batch_id=0)
    with pytest.raises(ReportedError, match="has no table nothing; run the job"):
        lake.read("nothing")


def test_a_history_is_in_iceberg_as_it_is_in_delta(spark: SparkSession, tmp_path: Path) -> None:
    from kohort.pipeline.delta.lake import DeltaLake  # noqa: PLC0415

    history: list[HistoryRecord] = [
        rebalance(1, 0, member("a-1", join=0, sync=9, fate="new", gained=["t-0"])),
        rebalance(2, 60, member("a-1", join=0, sync=30, kept=1)),
        avoided(3, 90),
        rebalance(4, 120, member("a-1", fate="session_expired", fate_ms=0, given_up=["t-0"])),
    ]
    lines = [line(record) for record in history]
    lakes: list[Lake] = [
        iceberg_lake(spark, tmp_path / "iceberg"),
        DeltaLake(spark, str(tmp_path / "delta")),
    ]
    for lake in lakes:
        for part in (lines[:2], lines, lines):
            take(lake, records(part))
            Findings(lake, Thresholds()).renew()
    for table in (*HISTORY, *FINDINGS):
        one, other = (lake.read(table.name).select(*table.names) for lake in lakes)
        assertDataFrameEqual(one, other, rtol=0, atol=0)
    assert Findings(lakes[0], Thresholds()).renew() == 0


def test_topics_are_landed_in_iceberg_and_jobs_read_what_they_wrote(
    pipeline: Pipeline,
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = ("--lake", tmp_path / "lake", "--format", "iceberg")
    topic = topics.create(3)
    broker = ("--bootstrap-server", topics.bootstrap)
    for first in (0, 300):
        topics.produce(topic, 300, partitions=3, first=first)
        arguments = (topic, "--available-now", "--max-offsets-per-trigger", 200)
        assert pipeline("land", *arguments, *broker, *lake) == 0
    landed = iceberg_lake(spark, tmp_path / "lake").read(f"land/{topic}")
    expected = [(row[0], row[1], row[4]) for row in topics.read(topic)]
    assert_rows(landed.select("partition", "offset", "value"), expected)

    week = Path(__file__).parents[2] / "examples" / "rebalance-week" / "week.jsonl.gz"
    assert pipeline("rebalances", "--from", week, "--cluster-id", "example", *lake) == 0
    assert pipeline("advise", "--topic", "", "--group", "search", *lake) == 0
    assert pipeline("report", "--output", tmp_path / "report.html", *lake) == 0
    assert "billing" in (tmp_path / "report.html").read_text()
    capsys.readouterr()
    iceberg = iceberg_lake(spark, tmp_path / "lake")
    assert iceberg.file_count(f"land/{topic}") > 1
    assert pipeline("tidy", "--keep-days", 1, *lake) == 0
    assert f"tidy: {len(iceberg.names())} tables, " in capsys.readouterr().err
    assert iceberg.file_count(f"land/{topic}") == 1
    assert_rows(iceberg.read(f"land/{topic}").select("partition", "offset", "value"), expected)
