"""Batches that break off anywhere are completed by whoever runs again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.events import avoided, line, member, raw, rebalance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES = [
    line(rebalance(1, 0, member("a-1", join=0, sync=10, fate="new", gained=["t-0"]))),
    b"{",
    line(avoided(2, 10)),
    line(rebalance(3, 20, member("a-1", join=0, sync=10, kept=1))),
]


class PowerCutError(Exception):
    """The process is gone."""


@pytest.mark.timeout(1_200)
@pytest.mark.slow_jobs
def test_a_batch_that_breaks_off_between_any_two_writes_is_completed(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pipeline.lake import Lake  # noqa: PLC0415
    from pipeline.rebalances.findings import Findings, Thresholds  # noqa: PLC0415
    from pipeline.rebalances.ingest import Ingest  # noqa: PLC0415

    class Breaking(Lake):
        """Does so many writes and no more."""

        left = 0

        def merge_new(
            self, frame: DataFrame, name: str, *, on: Sequence[str], is_unique: bool = False
        ) -> None:
            self._count()
            super().merge_new(frame, name, on=on, is_unique=is_unique)

        def append(self, frame: DataFrame, name: str) -> None:
            self._count()
            super().append(frame, name)

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
