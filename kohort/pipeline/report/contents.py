"""What the page shows, collected from the lake's tables: figures of a bounded number of groups.

Spark adds up; what comes here is what a page can show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kohort.pipeline.errors import PipelineError
from kohort.pipeline.lake import Lake
from kohort.pipeline.schemas import CAUSES, REBALANCES, STORMS
from kohort.pipeline.schemas.advice import ADVICE
from kohort.pipeline.transformations.common import GROUP

GROUPS_SHOWN: Final = 12
STORMS_SHOWN: Final = 3
EVENTS_OF_STORM: Final = 400
Row = dict[str, Any]


@dataclass
class GroupPage:
    """One group on the page."""

    cluster_id: str
    group: str
    rebalances: int
    needless: int
    stopped_ms: int
    stopped_longest_ms: int
    first_at: datetime
    last_at: datetime
    causes: list[Row] = field(default_factory=list)
    by_day: list[Row] = field(default_factory=list)
    """day, rebalances, stopped_ms."""
    storms: list[Row] = field(default_factory=list)
    """The storms of the table, each with `events`: the rebalances in it."""
    advice: list[Row] = field(default_factory=list)
    """All settings that were tried."""


@dataclass
class Contents:
    """All of the page."""

    groups: list[GroupPage]
    group_count: int
    """Groups of the lake, whether shown or not."""


def collect(lake: Lake, groups: list[str]) -> Contents:
    """The groups that stood still for longest, or those that are named.

    Raises:
        PipelineError: no rebalance of such a group is in the lake.
    """
    rebalances = lake.read(REBALANCES.name)
    if groups:
        rebalances = rebalances.where(f.col("group").isin(groups))
    totals = rebalances.groupBy(*GROUP).agg(
        f.count("*").alias("rebalances"),
        f.sum(f.coalesce(f.col("needless").cast("int"), f.lit(0))).alias("needless"),
        f.coalesce(f.sum("stopped_total_ms"), f.lit(0)).alias("stopped_ms"),
        f.coalesce(f.max("stopped_longest_ms"), f.lit(0)).alias("stopped_longest_ms"),
        f.min("started_at").alias("first_at"),
        f.max("started_at").alias("last_at"),
    )
    longest = totals.orderBy(f.desc("stopped_ms"), f.desc("rebalances"), *GROUP)
    pages = [GroupPage(**row) for row in _rows(longest.limit(GROUPS_SHOWN))]
    if not pages:
        raise PipelineError("no rebalance of such a group is in the lake")
    for page in pages:
        _fill(page, lake, _of(rebalances, page))
    return Contents(pages, totals.count())


def _of(frame: DataFrame, page: GroupPage) -> DataFrame:
    is_cluster = f.col("cluster_id").eqNullSafe(page.cluster_id)
    return frame.where(is_cluster & (f.col("group") == page.group))


def _rows(frame: DataFrame) -> list[Row]:
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    return [{name: in_utc(value) for name, value in row.items()} for row in rows]


def in_utc(value: Any) -> Any:  # noqa: ANN401 - of any column.
    """Python gets timestamps from Spark in the zone of this machine, and without its name."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def _fill(page: GroupPage, lake: Lake, rebalances: DataFrame) -> None:
    days = rebalances.groupBy(f.to_date("started_at").alias("day")).agg(
        f.count("*").alias("rebalances"),
        f.coalesce(f.sum("stopped_total_ms"), f.lit(0)).alias("stopped_ms"),
    )
    page.by_day = _rows(days.orderBy("day").limit(400))
    if lake.exists(CAUSES.name):
        causes = _of(lake.read(CAUSES.name), page)
        page.causes = _rows(causes.orderBy(f.desc("rebalance_count")).limit(20))
    if lake.exists(STORMS.name):
        storms = _of(lake.read(STORMS.name), page)
        worst = storms.orderBy(f.desc("stopped_total_ms"), "first_sequence").limit(STORMS_SHOWN)
        page.storms = _rows(worst)
    for storm in page.storms:
        within = f.col("sequence").between(storm["first_sequence"], storm["last_sequence"])
        columns = ("sequence", "started_at", "duration_ms", "trigger_kind", "trigger_client_id")
        events = rebalances.where(within).select(*columns, "stopped_total_ms", "outcome")
        storm["events"] = _rows(events.orderBy("sequence").limit(EVENTS_OF_STORM))
    if lake.exists(ADVICE.name):
        page.advice = _rows(_of(lake.read(ADVICE.name), page).orderBy("ordinal"))
