"""Batches that break off anywhere are completed by the next run."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort.pipeline.delta.lake import DeltaLake
from kohort.pipeline.delta.tables import DeltaChange
from kohort.pipeline.rebalances.findings import Findings, Thresholds
from tests.pipeline.events import assigned, avoided, line, member, rebalance, records, take
from tests.pipeline.frames import assert_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGES = {name: getattr(DeltaChange, name) for name in ("append", "replace")}

VALUES = [
    line(rebalance(1, 0, member("a-1", join=0, sync=10, fate="new", gained=["t-0"]))),
    b"{",
    line(avoided(2, 10)),
    line(rebalance(3, 20, member("a-1", join=0, sync=10, kept=1))),
]


class PowerCutError(Exception):
    """The process is gone."""


class Commits:
    """Commits as they are, with what a test lets happen before one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        """So many are done, and no more."""
        self.table = ""
        self.others: list[Callable[[], object]] = []
        """What other runs do before this one commits to that table."""
        commits = self

        for name, change in CHANGES.items():

            def commit(
                changing: DeltaChange,
                *given: Any,  # noqa: ANN401
                change: Callable[..., object] = change,
            ) -> object:
                commits.before(changing)
                return change(changing, *given)

            monkeypatch.setattr(DeltaChange, name, commit)

    def before(self, change: DeltaChange) -> None:
        if self.left is not None:
            if not self.left:
                raise PowerCutError
            self.left -= 1
        assert change._table is not None
        if change._table.table_uri.rstrip("/").endswith(f"/{self.table}") and self.others:
            self.others.pop()()


def noted(values: set[bool], value: bool) -> bool:
    """Always, and the set has the value then."""
    values.add(value)
    return True


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch)


@pytest.mark.long
def test_a_batch_that_breaks_off_between_any_two_writes_is_completed(
    spark: SparkSession, tmp_path: Path, commits: Commits
) -> None:
    lake = DeltaLake(spark, str(tmp_path / "lake"))
    # Quarantine, members, rebalances, avoided: each run gets one further.
    for turn in range(4):
        commits.left = min(turn, 1)
        with pytest.raises(PowerCutError):
            take(lake, records(VALUES))
    commits.left = None
    tally = take(lake, records(VALUES))
    assert (tally.rebalances, tally.avoided, tally.quarantined) == (2, 1, 1)
    counts = {
        name: lake.read(name).count() for name in ("rebalances", "avoided", "members", "quarantine")
    }
    assert counts == {"rebalances": 2, "avoided": 1, "members": 2, "quarantine": 1}
    # Findings that break off are made by the next run, though no event is new to it.
    commits.left = 3
    with pytest.raises(PowerCutError):
        Findings(lake, Thresholds()).renew()
    commits.left = None
    assert Findings(lake, Thresholds()).renew() == 1
    counted = lake.read("groups").select("event_count", "rebalance_count", "needless_count")
    assert_rows(counted, [(3, 2, 1)])
    assert lake.read("partitions").count() == 3
    assert Findings(lake, Thresholds()).renew() == 0


@pytest.mark.long
def test_runs_that_find_the_same_events_missing_write_them_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], commits: Commits
) -> None:
    root = str(tmp_path / "lake")
    slow, quick = DeltaLake(spark, root), DeltaLake(spark, root)
    for number, table in enumerate(["members", "rebalances", "avoided"]):
        values = [
            line(rebalance(3 * number + 1, 60 * number, member("a-1", join=0, sync=10, kept=1))),
            line(avoided(3 * number + 2, 60 * number + 10)),
        ]
        commits.table = table
        commits.others.append(partial(take, quick, records(values)))
        take(slow, records(values))
        assert not commits.others
        assert f"the table {table} of" in capsys.readouterr().err
    for table, count in {"rebalances": 3, "members": 3, "avoided": 3}.items():
        assert quick.read(table).count() == count
    # The other run knows of an event more, and this one would write over what it has found.
    Findings(quick, Thresholds()).renew()

    def take_more(sequence: int) -> None:
        more = rebalance(sequence, 5 * sequence, member("a-1", join=0, sync=10, kept=1))
        take(quick, records([line(more)]))

    def find_more() -> None:
        take_more(99)
        Findings(quick, Thresholds()).renew()

    take_more(98)
    commits.table, findings = "acts", Findings(slow, Thresholds())

    commits.others.append(find_more)
    findings.renew()
    assert not commits.others
    assert f"the table {commits.table} of" in capsys.readouterr().err
    assert Findings(quick, Thresholds()).renew() == 0
    acts = quick.read("acts").where("kind = 'scale_out'")
    assert sum(row["rebalance_count"] for row in acts.collect()) == 5


def test_assignments_of_share_groups_are_counted_and_in_no_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = DeltaLake(spark, str(tmp_path / "lake"))
    tally = take(lake, records([line(assigned(1, 0)), *VALUES, line(assigned(2, 5))]))
    assert (tally.rebalances, tally.avoided, tally.quarantined, tally.assigned) == (2, 1, 1, 2)
    assert tally.records == len(VALUES) + 2
    assert "2 assignments of share groups left out" in tally.shown()
    groups = {
        row["group"]
        for name in ("rebalances", "avoided", "members")
        for row in lake.read(name).select("group").collect()
    }
    assert groups == {"billing"}


def test_an_event_is_there_once_and_what_contradicts_it_in_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = DeltaLake(spark, str(tmp_path / "lake"))
    first, other = rebalance(1, 0), rebalance(1, 9)
    told = [line(first), line(rebalance(2, 60, outcome="running")), line(first), line(other)]
    collects: set[bool] = set()
    for _ in range(2):
        # Rows are many, and none is in a cycle.
        tally = take(lake, (one for one in records(told) if noted(collects, gc.isenabled())))
        assert tally.reasons == {"sequence_taken": 1}
    assert (collects, gc.isenabled()) == ({False}, True)
    # In a batch of its own, beside one that is new.
    tally = take(lake, records([line(other), line(avoided(3, 90)), b"{}"]))
    assert tally.reasons == {"sequence_taken": 1, "missing_field": 1}
    assert_rows(lake.read("rebalances").select("sequence", "offset"), [(1, 0)])
    assert lake.read("running").count() == 1
    expected = [
        (0, "sequence_taken", "billing"),
        (2, "missing_field", "billing"),
        (3, "sequence_taken", "billing"),
    ]
    assert_rows(lake.read("quarantine").select("offset", "reason", "key"), expected)
