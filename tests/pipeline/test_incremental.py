"""Findings made bit by bit are those made at once, row for row, wherever the history was cut."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f
from pyspark.testing import assertDataFrameEqual

from tests.pipeline.events import avoided, line, member, rebalance, records, take
from tests.pipeline.lakes import lake_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.groups.history.model import HistoryRecord, MemberTimeline, RebalanceRecord
    from kohort.pipeline.delta.lake import DeltaLake
    from kohort.pipeline.lake import Lake

ALL_AT_ONCE = 12
"""Events in the lake that everything is compared with, of each group."""


def some_rebalance(
    chance: random.Random, group: str, sequence: int, at_s: float
) -> RebalanceRecord:
    """Members that move partitions among them, as chance has it."""
    names = [f"{name}-1" for name in "abc"]
    moved = [f"t-{number}" for number in range(6) if chance.random() < 0.4]
    giver, taker = chance.sample(names, 2)

    def of(name: str) -> MemberTimeline:
        join = chance.randrange(0, 400)
        if name == giver and chance.random() < 0.3:
            return member(name, fate="session_expired", fate_ms=0, given_up=moved)
        return member(
            name,
            join=join,
            sync=join + chance.randrange(1, 400),
            mode=chance.choice(["eager", "cooperative"]),
            given_up=moved if name == giver else [],
            gained=moved if name == taker else [],
            told_ms=chance.randrange(0, 50),
        )

    trigger = chance.choice(["member_added", "member_left", "session_expired"])
    record = rebalance(sequence, at_s, *map(of, names), trigger=trigger, by=giver)
    return replace(record, group=group)


def history(chance: random.Random) -> list[HistoryRecord]:
    """History of three groups, in the order of writing; some numbers are missing."""
    records: list[tuple[float, HistoryRecord]] = []
    for group in ("billing", "orders", "search"):
        at_s = 0.0
        for sequence in range(1, ALL_AT_ONCE + 1):
            at_s += chance.choice([5.0, 30.0, 900.0])
            if chance.random() < 0.1:
                continue
            if chance.random() < 0.15:
                records.append((at_s, replace(avoided(sequence, at_s), group=group)))
            else:
                records.append((at_s, some_rebalance(chance, group, sequence, at_s)))
    return [record for _, record in sorted(records, key=lambda one: one[0])]


def test_findings_made_bit_by_bit_are_those_made_at_once(
    spark: SparkSession, tmp_path: Path, long_form: bool
) -> None:
    from kohort.insight.tables.findings import FINDINGS  # noqa: PLC0415
    from kohort.pipeline.arrow import is_same, schema_of  # noqa: PLC0415
    from kohort.pipeline.delta.lake import DeltaLake  # noqa: PLC0415
    from kohort.pipeline.rebalances.findings import Findings, Thresholds  # noqa: PLC0415

    def add(lake: DeltaLake, values: list[bytes]) -> None:
        take(lake, records(values))
        Findings(lake, Thresholds()).renew()

    filled: set[str] = set()
    for seed in range(10 if long_form else 1):
        chance = random.Random(seed)
        lines = [line(record) for record in history(chance)]

        at_once = DeltaLake(spark, str(tmp_path / f"at-once-{seed}"))
        add(at_once, lines)
        bit_by_bit = DeltaLake(spark, str(tmp_path / f"bit-by-bit-{seed}"))
        # The last bit is one event, of one group: the other groups' rows stay.
        cuts = [0, chance.randrange(1, len(lines) - 1), len(lines) - 1, len(lines)]
        for begin, end in itertools.pairwise(cuts):
            add(bit_by_bit, lines[begin:end])
        assert not Findings(bit_by_bit, Thresholds()).renew()
        for table in FINDINGS:
            found, expected = (
                lake.begin(table.name).read(schema_of(table)) for lake in (bit_by_bit, at_once)
            )
            # Files come in any order.
            assert is_same(found, [expected]), table.name
            if expected.num_rows:
                filled.add(table.name)
        if not seed:
            # As Spark reads them.
            assertDataFrameEqual(bit_by_bit.read("groups"), at_once.read("groups"))
    # No member of these histories is slow.
    assert filled | {"slow_members"} == {table.name for table in FINDINGS}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_group_that_is_too_large_is_worked_out_in_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from kohort.insight.tables.findings import FINDINGS  # noqa: PLC0415
    from kohort.pipeline.rebalances import findings  # noqa: PLC0415

    def add(lake: Lake, values: list[bytes]) -> None:
        take(lake, records(values))
        findings.Findings(lake, findings.Thresholds()).renew()

    lines = [line(record) for record in history(random.Random(1))]
    at_once = lake_of(spark, tmp_path / "at-once", kind)
    add(at_once, lines)
    # Two events or three are a part, and what comes of them is more than may be held.
    monkeypatch.setattr(findings, "ROWS_AT_ONCE", 32)
    monkeypatch.setattr("kohort.pipeline.arrow.HELD_ROWS_MAX", 5)
    in_batches = lake_of(spark, tmp_path / "in-parts", kind)
    for values in (lines[:-1], lines[-1:]):
        add(in_batches, values)
    versions = [in_batches.version(table.name) for table in FINDINGS]
    assert findings.Findings(in_batches, findings.Thresholds()).renew() == 0
    for table in FINDINGS:
        found, expected = (lake.read(table.name) for lake in (in_batches, at_once))
        if table.name == "partitions":
            found, expected = (
                frame.withColumn("partitions", f.explode("partitions"))
                for frame in (found, expected)
            )
        assertDataFrameEqual(found, expected)
    assert versions == [in_batches.version(table.name) for table in FINDINGS]
