"""Iceberg's small files are put together, and its old snapshots go with the files they had."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from kohort.pipeline.arrow import from_columns, schema_of
from kohort.pipeline.schemas.columns import MOMENT, WHOLE, Column, Table
from tests.support.processes import java_env

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import SparkSession

    from kohort.pipeline.iceberg.lake import IcebergLake

pytestmark = pytest.mark.long

WEEK_H = 168

NUMBERS = Table(
    "land/numbers",
    "A row for each number.",
    ("number",),
    (Column("number", WHOLE, ""), Column("day", MOMENT, "")),
)


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    try:
        from kohort.pipeline.iceberg.lake import IcebergLake  # noqa: PLC0415 - an extra.
    except ImportError:
        java_env.missing("PyIceberg is not installed: pip install '.[dev-long]'")
    # Nothing here is a query.
    return IcebergLake(cast("SparkSession", None), str(tmp_path / "lake"))


def add(lake: IcebergLake, *numbers: int, day: int = 0) -> None:
    rows = from_columns(NUMBERS, [list(numbers), [day * 86_400_000] * len(numbers)])
    lake.begin(NUMBERS.name).append(rows, NUMBERS.key)


def numbers_of(lake: IcebergLake) -> list[int]:
    found: list[int] = lake.begin(NUMBERS.name).read(schema_of(NUMBERS))["number"].to_pylist()
    return sorted(found)


def table_of(lake: IcebergLake) -> IcebergTable:
    return lake._tables.get(NUMBERS.name)


def files_below(lake: IcebergLake) -> set[str]:
    return {
        str(path) for path in Path(lake.root).rglob("*") if path.suffix in {".parquet", ".avro"}
    }


def needed(lake: IcebergLake) -> set[str]:
    """Files of the snapshots that the table has."""
    table = table_of(lake)
    found: set[str] = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found |= {entry.data_file.file_path for entry in entries}
    return {path.removeprefix("file://") for path in found}


def test_small_files_are_put_together_within_their_partitions(lake: IcebergLake) -> None:
    lake.create(NUMBERS.name, NUMBERS.schema, ["day"])
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

    lake.create(NUMBERS.name, NUMBERS.schema)
    for number in range(3):
        add(lake, number, day=number)
    meanwhile: list[Any] = [lambda: add(lake, 3, day=3)]

    def written(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - PyIceberg's.
        meanwhile.pop()()
        return original(*args, **named)

    original = pyarrow._dataframe_to_data_files
    monkeypatch.setattr("kohort.pipeline.iceberg.upkeep._dataframe_to_data_files", written)
    lake.compact(NUMBERS.name)
    assert (numbers_of(lake), lake.file_count(NUMBERS.name)) == ([0, 1, 2, 3], 2)
    # One of the files that are put together is gone by then, and not to come back.
    meanwhile.append(lambda: lake.forget(NUMBERS.name, "day", datetime.fromtimestamp(86_400, UTC)))
    lake.compact(NUMBERS.name)
    assert numbers_of(lake) == [1, 2, 3]
    assert files_below(lake) == needed(lake)


def test_a_commit_that_is_refused_is_tried_again(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create(NUMBERS.name, NUMBERS.schema)
    for number in range(2):
        add(lake, number)
    get, calls = lake._tables.get, list[int]()

    def get_and_be_late(name: str) -> IcebergTable:
        table = get(name)
        calls.append(len(calls))
        if len(calls) == 2:
            monkeypatch.undo()
            add(lake, 2)
            monkeypatch.setattr(lake._tables, "get", get_and_be_late)
        return table

    monkeypatch.setattr(lake._tables, "get", get_and_be_late)
    lake.compact(NUMBERS.name)
    assert len(calls) == 3
    assert (numbers_of(lake), lake.file_count(NUMBERS.name)) == ([0, 1, 2], 2)


def test_old_snapshots_go_with_the_files_that_no_other_has(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create(NUMBERS.name, NUMBERS.schema, ["day"])
    # Two files of one manifest, of which one is removed: the other is in a new manifest then.
    rows = from_columns(NUMBERS, [[0, 9], [0, 9 * 86_400_000]])
    lake.begin(NUMBERS.name).append(rows, NUMBERS.key)
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
    lake.create(NUMBERS.name, NUMBERS.schema)
    for number in range(3):
        add(lake, number)
    with table_of(lake).transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    before = files_below(lake)
    lake.vacuum(NUMBERS.name, 0)
    assert files_below(lake) == before
    assert len(table_of(lake).snapshots()) == 3
