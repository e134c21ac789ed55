"""Batches that break off anywhere are completed by whoever runs again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.pipeline.events import avoided, line, member, raw, rebalance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kohort.pipeline.append_transaction import AppendTransaction

VALUES = [
    line(rebalance(1, 0, member("a-1", join=0, sync=10, fate="new", gained=["t-0"]))),
    b"{",
    line(avoided(2, 10)),
    line(rebalance(3, 20, member("a-1", join=0, sync=10, kept=1))),
]


class PowerCutError(Exception):
    """The process is gone."""


@pytest.mark.timeout(1_200)
@pytest.mark.long
def test_a_batch_that_breaks_off_between_any_two_writes_is_completed(
    spark: SparkSession, tmp_path: Path
) -> None:
    from kohort.pipeline.lake import Lake  # noqa: PLC0415
    from kohort.pipeline.rebalances.findings import Findings, Thresholds  # noqa: PLC0415
    from kohort.pipeline.rebalances.ingest import Ingest  # noqa: PLC0415

    class Breaking(Lake):
        """Does so many writes and no more."""

        left = 0

        def merge_new(
            self, frame: DataFrame, name: str, *, on: Sequence[str], is_unique: bool = False
        ) -> None:
            self._count()
            super().merge_new(frame, name, on=on, is_unique=is_unique)

        def append(self, frame: DataFrame, name: str, transaction: AppendTransaction) -> None:
            self._count()
            super().append(frame, name, transaction)

        def overwrite(self, frame: DataFrame, name: str) -> None:
            self._count()
            super().overwrite(frame, name)

        def _count(self) -> None:
            if not self.left:
                raise PowerCutError
            self.left -= 1

    root = str(tmp_path / "lake")
    broken = Breaking(spark, root)
    # Quarantine, members, rebalances, avoided, in this order.
    for writes in range(4):
        broken.left = writes
        with pytest.raises(PowerCutError):
            Ingest(broken).take(raw(spark, VALUES))
    lake = Lake(spark, root)
    tally = Ingest(lake).take(raw(spark, VALUES))
    assert (tally.rebalances, tally.avoided, tally.quarantined) == (2, 1, 1)
    counts = {
        name: lake.read(name).count() for name in ("rebalances", "avoided", "members", "quarantine")
    }
    assert counts == {"rebalances": 2, "avoided": 1, "members": 2, "quarantine": 1}
    # Findings that break off are made by the next run, though no event is new to it.
    broken.left = 3
    with pytest.raises(PowerCutError):
        Findings(broken, Thresholds()).renew()
    assert Findings(lake, Thresholds()).renew() == 1
    (group,) = lake.read("groups").collect()
    assert (group["event_count"], group["rebalance_count"], group["needless_count"]) == (3, 2, 1)
    assert lake.read("partitions").count() == 3
    assert Findings(lake, Thresholds()).renew() == 0


@pytest.mark.timeout(1_200)
@pytest.mark.long
def test_runs_that_find_the_same_events_missing_write_them_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kohort.pipeline.lake import Lake  # noqa: PLC0415
    from kohort.pipeline.rebalances.findings import Findings, Thresholds  # noqa: PLC0415
    from kohort.pipeline.rebalances.ingest import Ingest  # noqa: PLC0415

    class Overtaken(Lake):
        """Before one of its writes, another run does all its own."""

        table = ""
        others: ClassVar[list[Callable[[], object]]] = []

        def append(self, frame: DataFrame, name: str, transaction: AppendTransaction) -> None:
            self._let_by(name)
            super().append(frame, name, transaction)

        def overwrite(self, frame: DataFrame, name: str) -> None:
            self._let_by(name)
            super().overwrite(frame, name)

        def _let_by(self, name: str) -> None:
            if name == self.table and self.others:
                self.others.pop()()

    slow, quick = Overtaken(spark, str(tmp_path / "lake")), Lake(spark, str(tmp_path / "lake"))
    mine = Ingest(slow)
    for number, table in enumerate(["members", "rebalances", "avoided"]):
        values = [
            line(rebalance(3 * number + 1, 60 * number, member("a-1", join=0, sync=10, kept=1))),
            line(avoided(3 * number + 2, 60 * number + 10)),
        ]
        slow.table = table
        slow.others.append(partial(Ingest(quick).take, raw(spark, values)))
        mine.take(raw(spark, values))
        assert not slow.others
        assert f"the table {table} of" in capsys.readouterr().err
    for table, count in {"rebalances": 3, "members": 3, "avoided": 3}.items():
        assert quick.read(table).count() == count
    # The other run knows of an event more, and this one writes over what it has found.
    slow.table, findings = "causes", Findings(slow, Thresholds())

    def find_more() -> None:
        more = rebalance(99, 500, member("a-1", join=0, sync=10, kept=1))
        Ingest(quick).take(raw(spark, [line(more)]))
        Findings(quick, Thresholds()).renew()

    slow.others.append(find_more)
    findings.renew()
    assert not slow.others
    assert "another run renewed them meanwhile; doing it again" in capsys.readouterr().err
    assert Findings(quick, Thresholds()).renew() == 0
    (known,) = quick.read("causes").where("trigger_kind = 'member_added'").collect()
    assert known["rebalance_count"] == 4
