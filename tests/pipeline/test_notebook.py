"""The pipeline from notebooks: data frames, and an example that is run as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.testing import assertDataFrameEqual

from kohort.pipeline import advise, findings, history
from kohort.pipeline.errors import PipelineError
from kohort.pipeline.rebalances.ingest import Ingest
from tests.pipeline.events import CLUSTER, avoided, line, member, rebalance, records
from tests.pipeline.frames import assert_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.broker.core.history.model import HistoryRecord

ROOT = Path(__file__).parents[2]

EVENTS: list[HistoryRecord] = [
    rebalance(1, 0, member("a-1", join=0, sync=9, fate="new", gained=["t-0"])),
    rebalance(2, 60, member("a-1", join=0, sync=30, kept=1)),
    avoided(3, 90),
]


def test_a_history_is_the_same_out_of_files_and_out_of_a_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    from kohort.pipeline.delta.lake import DeltaLake  # noqa: PLC0415

    lines = [line(record) for record in EVENTS]
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"\n".join([lines[0], b"no event", lines[0], *lines[1:]]))
    Ingest(DeltaLake(spark, str(tmp_path / "lake"))).take(records(lines))

    of_file = history(spark, str(file), cluster_id=CLUSTER)
    of_lake = history(spark, lake=str(tmp_path / "lake"))
    assertDataFrameEqual(of_file, of_lake)
    found = findings(spark, of_file)
    counts = found["groups"].select("event_count", "rebalance_count", "needless_count")
    assert_rows(counts, [(3, 2, 1)])
    assert found["partitions"].count() == 3
    with pytest.raises(PipelineError, match="in files or in a lake"):
        history(spark)


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
