"""A lake that is put in order has the same rows in fewer files, and forgets what it is told to."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.conftest import Pipeline
from tests.pipeline.events import line, member, rebalance, records, take
from tests.pipeline.frames import assert_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(1_200)
@pytest.mark.long
def test_small_files_are_put_together_and_old_events_forgotten(
    pipeline: Pipeline, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kohort.pipeline.delta.lake import DeltaLake  # noqa: PLC0415
    from kohort.pipeline.rebalances.findings import Findings, Thresholds  # noqa: PLC0415

    root = tmp_path / "lake"
    lake = DeltaLake(spark, str(root))
    for batch_id in range(4):
        lake.append_once(spark.range(2), "land/orders", app_id="a", batch_id=batch_id)
    now_ms = int(time.time() * 1000)
    first = rebalance(1, 0, member("a-1", join=0, sync=10, gained=["t-0"]))
    lines = [
        line(replace(first, group=group, sequence=number, started_at_ms=now_ms - days * 86_400_000))
        for group, number, days in [("old", 1, 90), ("both", 1, 90), ("both", 2, 1)]
    ]
    take(lake, records(lines))
    Findings(lake, Thresholds()).renew()
    assert lake.read("groups").count() == 2

    # What a write left behind that was killed eight days ago, and one that goes on.
    orphans = [root / "rebalances" / f"part-{name}.snappy.parquet" for name in ("old", "new")]
    for orphan in orphans:
        orphan.write_bytes(b"")
    week_ago_s = time.time() - 8 * 86_400
    os.utime(orphans[0], (week_ago_s, week_ago_s))

    assert pipeline("tidy", "--lake", root, "--keep-days", "30") == 0

    assert [orphan.exists() for orphan in orphans] == [False, True]

    assert lake.file_count("land/orders") == 1
    assert lake.read("land/orders").count() == 8
    assert_rows(lake.read("rebalances").select("group", "sequence"), [("both", 2)])
    assert lake.read("members").count() == 1
    groups = lake.read("groups").select("group", "first_sequence", "event_count")
    assert_rows(groups, [("both", 2, 1)])
    assert "tables" in capsys.readouterr().err
