"""Histories of `kohort watch` in the tables: how certain everything is, and nothing twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort.groups.history.entry import observed_key
from kohort.insight.parsing import Record
from kohort.pipeline.delta.lake import DeltaLake
from kohort.pipeline.rebalances.findings import Findings, Thresholds
from tests.pipeline.events import take
from tests.unit.watch.recorded import watch_lab

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_the_tables_have_the_records_of_two_watchers_once_and_how_certain_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = watch_lab()
    first, later = history[: len(history) // 2], history[len(history) // 2 :]
    # The other watcher saw more of the past, and polls, so that it is surer.
    known = {observed_key(record) for record in first}
    other = [
        record | {"sequence": record["sequence"] + 50}
        for record in watch_lab(polls=True)
        if observed_key(record) in known
    ]
    assert len(other) == len(first)
    lake = DeltaLake(spark, str(tmp_path / "lake"))
    take(lake, as_records([*first, *other]))
    tally = take(lake, as_records([*other, *first, *later]))
    assert not tally.quarantined
    rebalances = [record for record in history if record["kind"] == "rebalance"]
    rows = lake.read("rebalances").collect()
    assert Counter(row["trigger_certainty"] for row in rows) == Counter(
        record["trigger"]["certainty"] for record in rebalances
    )
    assert {(row["group"], row["sequence"]): row["observed_offset"] for row in rows} == {
        (record["group"], record["sequence"]): record["observed"]["offset"] for record in rebalances
    }
    assert sum(row["started_earliest"] is not None for row in rows) == sum(
        bool(record["started_between_ms"])
        for record in rebalances
        if record["group_type"] == "classic"
    )
    assert lake.read("avoided").count() == len(history) - len(rebalances)
    members = lake.read("members").collect()
    assert Counter((row["fate"], row["certainty"]) for row in members) == Counter(
        (member["fate"], member.get("certainty"))
        for record in rebalances
        for member in record["members"]
    )
    Findings(lake, Thresholds(days=100 * 366)).renew()
    acts = lake.read("acts").collect()
    for certainty in ("likely", "unclear"):
        assert sum(row[f"{certainty}_count"] for row in acts) == sum(
            record["trigger"]["certainty"] == certainty for record in rebalances
        )


def as_records(events: list[dict[str, Any]]) -> list[Record]:
    return [
        Record("c", "rebalances.jsonl", 0, offset, None, None, json.dumps(event).encode())
        for offset, event in enumerate(events)
    ]
