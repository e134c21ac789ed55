"""Iceberg's small files are put together, and its old snapshots go with the files they had: of a
lake in a directory, of a catalog behind HTTP, and of an object store.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort.insight.tables.columns import MOMENT, WHOLE, Column, Table
from kohort.pipeline.arrow import from_columns, schema_of, spark_schema
from kohort.pipeline.catalog import Namespace
from tests.pipeline.catalogs import (
    as_environment,
    object_store,
    on_object_store,
    rest_catalog,
)
from tests.pipeline.events import GROUP, line, member, rebalance, records, take
from tests.support.processes import java_env

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import SparkSession

    from kohort.pipeline.iceberg.lake import IcebergLake
    from tests.pipeline.conftest import Pipeline

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]

PLACES = ("directory", "rest", "s3")

WEEK_H = 168

NUMBERS = Table(
    "land/numbers",
    "A row for each number.",
    ("number",),
    (Column("number", WHOLE, ""), Column("day", MOMENT, "")),
)


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What PyIceberg is told of a catalog behind HTTP; so it is below."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as address:
        yield {"type": "rest", "uri": address}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A catalog of SQL's, whose tables are on an object store."""
    directory = tmp_path_factory.mktemp("s3")
    with object_store(directory) as store:
        yield on_object_store(store, directory)


@pytest.fixture(params=PLACES)
def lake(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> IcebergLake:
    """An empty one. Nothing here is a query."""
    try:
        from pyiceberg.utils.config import Config  # noqa: PLC0415 - an extra.

        from kohort.pipeline.iceberg.lake import IcebergLake  # noqa: PLC0415
    except ImportError:
        java_env.missing("PyIceberg is not installed: pip install '.[dev-long]'")
    no_session = cast("SparkSession", None)
    if request.param == "directory":
        return IcebergLake(no_session, str(tmp_path / "lake"))
    settings: dict[str, str] = request.getfixturevalue(request.param)
    for name, value in as_environment("prod", settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    home = Namespace("prod", (f"tidy_{uuid4().hex}",))
    return IcebergLake(no_session, str(tmp_path / "lake"), home)


def options_of(lake: IcebergLake) -> tuple[str, ...]:
    """What a job is told, for it to find the lake."""
    home = lake.tables._namespace
    catalog = () if home is None else ("--catalog", str(home))
    return ("--lake", lake.root, "--format", "iceberg", *catalog)


def add(lake: IcebergLake, *numbers: int, day: int = 0) -> None:
    rows = from_columns(NUMBERS, [list(numbers), [day * 86_400_000] * len(numbers)])
    lake.begin(NUMBERS.name).append(rows)


def numbers_of(lake: IcebergLake) -> list[int]:
    found: list[int] = lake.begin(NUMBERS.name).read(schema_of(NUMBERS))["number"].to_pylist()
    return sorted(found)


def table_of(lake: IcebergLake) -> IcebergTable:
    return lake.tables.get(NUMBERS.name)


def files_below(lake: IcebergLake, name: str = NUMBERS.name) -> set[str]:
    """All files of a table's place that are not its metadata, by its own client for the store."""
    from pyarrow.fs import FileSelector  # noqa: PLC0415 - an extra.

    table = lake.tables.get(name)
    files, root = _in_store(table, table.location())
    found = files.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
    return {one.path for one in found if one.extension in {"parquet", "avro"}}


def needed(lake: IcebergLake, name: str = NUMBERS.name) -> set[str]:
    """Files of the snapshots that the table has."""
    table = lake.tables.get(name)
    found: set[str] = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found |= {entry.data_file.file_path for entry in entries}
    return {_in_store(table, path)[1] for path in found}


def _in_store(table: IcebergTable, location: str) -> tuple[Any, str]:
    """The file system of a location, and its path there."""
    io: Any = table.io
    scheme, host, path = io.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, host), path


def test_small_files_are_put_together_within_their_partitions(lake: IcebergLake) -> None:
    lake.create(NUMBERS.name, spark_schema(NUMBERS), ["day"])
    for number in range(4):
        add(lake, number, day=number % 2)
    add(lake, 4, day=2)
    assert lake.names() == [NUMBERS.name]
    assert lake.file_count(NUMBERS.name) == 5
    lake.compact(NUMBERS.name)
    assert lake.file_count(NUMBERS.name) == 3
    assert numbers_of(lake) == list(range(5))
    # What is whole stays as it is.
    version = lake.version(NUMBERS.name)
    lake.compact(NUMBERS.name)
    assert lake.version(NUMBERS.name) == version


def test_what_others_add_or_remove_meanwhile_is_as_they_left_it(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.io import pyarrow  # noqa: PLC0415 - an extra.

    lake.create(NUMBERS.name, spark_schema(NUMBERS))
    for number in range(3):
        add(lake, number, day=number)
    meanwhile: list[Any] = [lambda: add(lake, 3, day=3)]

    def written(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - PyIceberg's.
        meanwhile.pop()()
        return original(*args, **named)

    original = pyarrow.parquet_files_to_data_files
    monkeypatch.setattr("kohort.pipeline.iceberg.upkeep.parquet_files_to_data_files", written)
    lake.compact(NUMBERS.name)
    assert (numbers_of(lake), lake.file_count(NUMBERS.name)) == ([0, 1, 2, 3], 2)
    # One of the files that are put together is gone by then, and not to come back.
    meanwhile.append(lambda: lake.forget(NUMBERS.name, "day", datetime.fromtimestamp(86_400, UTC)))
    lake.compact(NUMBERS.name)
    assert numbers_of(lake) == [1, 2, 3]
    assert files_below(lake) == needed(lake)


def nested_rows(first: int) -> pa.Table:
    """Rows with a value, an empty value, a null in it, and a null in each nested column."""
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "headers": (
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            [[{"key": "k", "value": b"v"}], [], [{"key": None, "value": None}, None], None],
        ),
        "texts": (pa.list_(pa.string()), [["a"], [], [None], None]),
        "lists": (pa.list_(pa.list_(pa.int64())), [[[1]], [[]], [None], None]),
        "pair": (
            pa.struct([("at", pa.int64()), ("list", pa.list_(pa.int64()))]),
            [{"at": 1, "list": [1]}, {"at": 2, "list": []}, {"at": None, "list": None}, None],
        ),
        "by_name": (
            pa.map_(pa.string(), pa.struct([("at", pa.int64())])),
            [[("a", {"at": 1})], [], [("a", {"at": None})], None],
        ),
    }
    columns = {name: pa.array(rows, kind) for name, (kind, rows) in values.items()}
    return pa.table({"number": pa.array(range(first, first + 4), pa.int64()), **columns})


def test_nulls_of_nested_columns_stay_nulls(lake: IcebergLake) -> None:
    """With the files as Spark writes them: without field ids."""
    rows = [nested_rows(0), nested_rows(4), nested_rows(8).drop_columns(["by_name", "texts"])]
    table = lake.tables.make("land/nested", rows[0].schema, ())
    for part, place in zip(rows, "abc", strict=True):
        path = table.location_provider().new_data_location(f"{place}.parquet")
        with table.io.new_output(path).create() as sink:
            pq.write_table(part, sink)
        table.add_files([path])
    lake.compact("land/nested")
    table = lake.tables.get("land/nested")
    (task,) = table.scan().plan_files()
    with table.io.new_input(task.file.file_path).open() as source:
        found = pq.read_table(source).sort_by("number")
    expected = pa.concat_tables(rows, promote_options="default")
    assert found.to_pylist() == expected.to_pylist()
    assert task.file.record_count == 12


def test_a_file_with_a_column_that_was_renamed_since_is_left_alone(lake: IcebergLake) -> None:
    lake.create(NUMBERS.name, spark_schema(NUMBERS))
    for number in range(2):
        add(lake, number)
    with table_of(lake).update_schema() as update:
        update.rename_column("day", "date")
    renamed = from_columns(NUMBERS, [[2], [0]]).rename_columns(["number", "date"])
    for _ in range(2):
        table_of(lake).append(renamed)
    lake.compact(NUMBERS.name)
    assert lake.file_count(NUMBERS.name) == 3
    found = table_of(lake).scan().to_arrow()
    assert sorted(found["number"].to_pylist()) == [0, 1, 2, 2]
    assert found["date"].null_count == 0


def test_a_commit_that_is_refused_is_tried_again(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create(NUMBERS.name, spark_schema(NUMBERS))
    for number in range(2):
        add(lake, number)
    get, calls = lake.tables.get, list[int]()

    def get_and_be_late(name: str) -> IcebergTable:
        table = get(name)
        calls.append(len(calls))
        if len(calls) == 2:
            monkeypatch.undo()
            add(lake, 2)
            monkeypatch.setattr(lake.tables, "get", get_and_be_late)
        return table

    monkeypatch.setattr(lake.tables, "get", get_and_be_late)
    lake.compact(NUMBERS.name)
    assert len(calls) == 3
    assert (numbers_of(lake), lake.file_count(NUMBERS.name)) == ([0, 1, 2], 2)


def test_old_snapshots_go_with_the_files_that_no_other_has(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create(NUMBERS.name, spark_schema(NUMBERS), ["day"])
    # Two files of one manifest, of which one is removed: the other is in a new manifest then.
    rows = from_columns(NUMBERS, [[0, 9], [0, 9 * 86_400_000]])
    lake.begin(NUMBERS.name).append(rows)
    lake.forget(NUMBERS.name, "day", datetime.fromtimestamp(86_400, UTC))
    add(lake, 1, day=1)
    tagged = table_of(lake).snapshots()[-1].snapshot_id
    table_of(lake).manage_snapshots().create_tag(tagged, "kept").commit()
    add(lake, 2, day=1)
    lake.compact(NUMBERS.name)
    before = files_below(lake)
    # A week has not gone by.
    lake.vacuum(NUMBERS.name, WEEK_H)
    assert files_below(lake) == before
    lake.vacuum(NUMBERS.name, 0)
    left = {one.snapshot_id for one in table_of(lake).snapshots()}
    current = table_of(lake).current_snapshot()
    assert current is not None
    assert left == {current.snapshot_id, tagged}
    assert files_below(lake) == needed(lake) < before
    assert numbers_of(lake) == [1, 2, 9]
    assert table_of(lake).scan(snapshot_id=tagged).to_arrow().num_rows == 2


def test_files_of_a_table_that_says_they_are_not_its_own_stay(lake: IcebergLake) -> None:
    lake.create(NUMBERS.name, spark_schema(NUMBERS))
    for number in range(3):
        add(lake, number)
    with table_of(lake).transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    before = files_below(lake)
    lake.vacuum(NUMBERS.name, 0)
    assert files_below(lake) == before
    assert len(table_of(lake).snapshots()) == 3


def test_a_night_goes_over_all_tables_of_the_lake_and_no_other(
    pipeline: Pipeline,
    lake: IcebergLake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The job itself, eight days after these files were written."""
    from kohort.pipeline.rebalances.findings import Findings, Thresholds  # noqa: PLC0415 - Spark's.

    lake.create(NUMBERS.name, spark_schema(NUMBERS), ["day"])
    for number in range(6):
        add(lake, number, day=number % 2)
    days = {1: 90, 2: 40, 3: 1}
    for sequence, ago in days.items():
        now_ms = round((datetime.now(UTC) - timedelta(days=ago)).timestamp() * 1_000)
        event = rebalance(sequence, 0, member("a-1", join=0, sync=10, gained=["t-0"]))
        take(lake, records([line(replace(event, started_at_ms=now_ms))]))
    Findings(lake, Thresholds()).renew()
    # Somebody else's, in the same namespace.
    catalog = lake.tables._opened()
    theirs = (*lake.tables._home.levels, "theirs")
    rows = from_columns(NUMBERS, [[0], [0]])
    other = catalog.create_table(theirs, rows.schema)
    for _ in range(3):
        other.append(rows)

    class InEightDays(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(time.time() + 8 * 86_400, tz)

    monkeypatch.setattr("kohort.pipeline.iceberg.upkeep.datetime", InEightDays)
    assert pipeline("tidy", *options_of(lake), "--keep-days", "30") == 0

    assert f"{len(lake.names())} tables" in capsys.readouterr().err
    assert numbers_of(lake) == list(range(6))
    assert lake.file_count(NUMBERS.name) == 2
    kept = {name: lake.tables.get(name).scan().to_arrow() for name in ("rebalances", "members")}
    assert [kept[name]["sequence"].to_pylist() for name in kept] == [[3], [3]]
    (group,) = lake.tables.get("groups").scan().to_arrow().to_pylist()
    assert (group["group"], group["first_sequence"], group["event_count"]) == (GROUP, 3, 1)
    for name in lake.names():
        table = lake.tables.get(name)
        # A table without any row never had one.
        assert table.snapshots() == [one for one in [table.current_snapshot()] if one], name
        assert files_below(lake, name) == needed(lake, name), name
    other = catalog.load_table(theirs)
    assert (len(other.snapshots()), len(list(other.scan().plan_files()))) == (3, 3)
    # The next night finds nothing to do.
    assert pipeline("tidy", *options_of(lake), "--keep-days", "30") == 0
    assert numbers_of(lake) == list(range(6))
