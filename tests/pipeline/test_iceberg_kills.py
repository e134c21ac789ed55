"""What works events out is killed very often, in Iceberg's tables, which need no JVM for it.

The whole job, with Spark, is killed in `test_analysis_kills`: that takes a session for each kill.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.pipeline.events import CLUSTER, line, some_event, take
from tests.support.processes import java_env

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.pipeline.lake import Lake

GROUPS = 4
ROUND = 12
"""Events that come between two kills."""
BATCH = 5
LOOKS_BACK = 3
"""Rounds that are read once more, as after a kill that has left no note of what was done."""
KILLS_OF_ONE = 5
"""A kill takes a part of a second here, where the whole job's takes a session."""


def lake_at(root: str) -> Lake:
    try:
        from kohort.pipeline.iceberg.lake import IcebergLake  # noqa: PLC0415 - an extra.
    except ImportError:
        java_env.missing("PyIceberg is not installed: pip install '.[dev-long]'")
    # Nothing here is a query.
    return IcebergLake(cast("SparkSession", None), root)


def work(root: str, values: list[bytes], first: int, batch: int = BATCH) -> None:
    """The job between Kafka and the tables: values from that offset on, so many at a time."""
    from kohort.insight.parsing import Record  # noqa: PLC0415 - Spark's types.
    from kohort.pipeline.rebalances.findings import Findings, Thresholds  # noqa: PLC0415

    lake = lake_at(root)
    findings = Findings(lake, Thresholds())
    records = [
        Record(CLUSTER, "history", 0, first + number, None, b"key", value)
        for number, value in enumerate(values)
    ]
    for at in range(0, len(records), batch):
        take(lake, records[at : at + batch])
        findings.renew()


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_batches_and_findings_are_whole_however_often_they_are_killed(
    tmp_path: Path, pipeline_kills: int
) -> None:
    from kohort.insight.tables.history import REBALANCES  # noqa: PLC0415 - Spark's types.

    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {KILLS_OF_ONE * pipeline_kills} kills")
    chance = random.Random(seed)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["kohort.pipeline.iceberg.lake", __name__])
    root, undisturbed = str(tmp_path / "lake"), str(tmp_path / "undisturbed")
    values: list[bytes] = []
    rounds = [0]
    events, took_s, killed = 0, 5.0, 0
    while killed < KILLS_OF_ONE * pipeline_kills:
        for _ in range(ROUND):
            group, sequence = f"group-{events % GROUPS}", events // GROUPS + 1
            values += [line(event) for event in some_event(chance, group, sequence)]
            events += 1
        values.append(b"{")
        rounds.append(len(values))
        first = rounds[max(0, len(rounds) - 1 - LOOKS_BACK)]
        worker = processes.Process(target=work, args=(root, values[first:], first))
        begun_s = time.monotonic()
        worker.start()
        worker.join(chance.uniform(0, took_s))
        if worker.is_alive():
            worker.kill()
            killed += 1
        else:
            assert not worker.exitcode
            # It was quicker than had been thought.
            took_s = time.monotonic() - begun_s
        worker.join()
    for place in (root, undisturbed):
        work(place, values, 0, len(values))
    found, expected = tables(root), tables(undisturbed)
    assert found == expected
    assert len(expected[REBALANCES.name]) == events - events_avoided(events)
    print(f"{killed} kills; {events} events, each once")


def events_avoided(events: int) -> int:
    """Every fifth of each group."""
    return sum((number // GROUPS + 1) % 5 == 0 for number in range(events))


def tables(root: str) -> dict[str, list[Any]]:
    """The rows of all tables, in an order of their own."""
    from kohort.insight.tables.findings import FINDINGS  # noqa: PLC0415
    from kohort.insight.tables.history import HISTORY  # noqa: PLC0415
    from kohort.pipeline.arrow import schema_of  # noqa: PLC0415 - Spark's types.

    lake = lake_at(root)
    return {
        table.name: sorted(map(repr, lake.begin(table.name).read(schema_of(table)).to_pylist()))
        for table in (*HISTORY, *FINDINGS)
    }
