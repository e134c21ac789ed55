"""The pipeline from notebooks: data frames, and an example that is run as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.testing import assertDataFrameEqual

from kohort.insight.errors import ReportedError, UsageError
from kohort.pipeline import advise, findings, history
from kohort.pipeline.catalog import Namespace
from tests.pipeline.catalogs import as_environment
from tests.pipeline.events import CLUSTER, avoided, line, member, rebalance, records, take
from tests.pipeline.frames import assert_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.groups.history.model import HistoryRecord

ROOT = Path(__file__).parents[2]

EVENTS: list[HistoryRecord] = [
    rebalance(1, 0, member("a-1", join=0, sync=9, fate="new", gained=["t-0"])),
    rebalance(2, 60, member("a-1", join=0, sync=30, kept=1)),
    avoided(3, 90),
]


@pytest.mark.long
def test_a_history_is_the_same_out_of_files_and_out_of_a_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    from kohort.pipeline.delta.lake import DeltaLake  # noqa: PLC0415

    lines = [line(record) for record in EVENTS]
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"\n".join([lines[0], b"no event", lines[0], *lines[1:]]))
    take(DeltaLake(spark, str(tmp_path / "lake")), records(lines))

    of_file = history(spark, str(file), cluster_id=CLUSTER)
    of_lake = history(spark, lake=str(tmp_path / "lake"))
    assertDataFrameEqual(of_file, of_lake)
    found = findings(spark, of_file)
    counts = found["groups"].select("event_count", "rebalance_count", "needless_count")
    assert_rows(counts, [(3, 2, 1)])
    assert found["partitions"].count() == 3


@pytest.mark.long
def test_a_history_is_read_out_of_iceberg_in_a_lake_and_in_a_catalog(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.utils.config import Config  # noqa: PLC0415 - an extra.

    from kohort.pipeline.iceberg.lake import IcebergLake  # noqa: PLC0415

    file, lines = tmp_path / "history.jsonl", [line(record) for record in EVENTS]
    file.write_bytes(b"\n".join(lines))
    expected = history(spark, str(file), cluster_id=CLUSTER)
    settings = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}",
    }
    for name, value in as_environment("prod", settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    lake, place = str(tmp_path / "lake"), "prod.kafka"
    for one in (IcebergLake(spark, lake), IcebergLake(spark, lake, Namespace.parse(place))):
        take(one, records(lines))
    for found in (
        history(spark, lake=lake, format="iceberg"),
        history(spark, format="iceberg", catalog=place),
    ):
        assertDataFrameEqual(found, expected)


def test_where_a_history_is_has_to_be_said_without_contradiction(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path)
    with pytest.raises(ReportedError, match="either files or a lake"):
        history(spark)
    with pytest.raises(ReportedError, match="either files or a lake"):
        history(spark, "week.jsonl", lake=lake)
    with pytest.raises(UsageError, match="delta or iceberg, not parquet"):
        history(spark, lake=lake, format="parquet")
    with pytest.raises(UsageError, match=r"is not CATALOG\.NAMESPACE"):
        history(spark, format="iceberg", catalog="prod")
    with pytest.raises(UsageError, match="need lake="):
        history(spark, catalog="prod.kafka")


@pytest.mark.long
def test_the_example_notebook_runs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert advise is not None
    assert spark is not None
    monkeypatch.chdir(ROOT)
    notebook = json.loads((ROOT / "examples" / "rebalances.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    told = capsys.readouterr().out
    assert "billing-4" in told
    assert {row["group"] for row in names["best"].collect()}
