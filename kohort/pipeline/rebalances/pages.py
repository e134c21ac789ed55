"""The pages of a lake's groups: what the report shows, out of the tables.

A bounded number of rows comes here, of a bounded number of groups, with one query for each table
however many groups there are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType

from kohort.pipeline.errors import PipelineError
from kohort.pipeline.lake import Lake
from kohort.pipeline.report.contents import (
    GROUPS_LISTED,
    GROUPS_SHOWN,
    MARKS_MAX,
    OWNED_PARTITIONS_MAX,
    OWNED_TIMES_MAX,
    ROWS_SHOWN,
    STORMS_SHOWN,
    Contents,
    GroupPage,
    Listed,
    Ownership,
    Row,
    bin_of,
    told_max,
)
from kohort.pipeline.report.from_history import drawn_part, in_words
from kohort.pipeline.schemas import (
    CAUSES,
    FLAPPING,
    GROUPS,
    HEARTBEAT_GAPS,
    NEEDLESS,
    PARTITIONS,
    REBALANCES,
    SLOW_MEMBERS,
    STORMS,
    UNAVAILABILITY,
    Table,
)
from kohort.pipeline.schemas.advice import ADVICE
from kohort.pipeline.transformations.common import GROUP

Key = tuple[str, str]
CULPRITS_MAX: Final = 5
ADVICE_MAX: Final = 1_000
"""Settings of a group; the largest grids have some hundred."""

_NAMES: Final = ("instance_id", "client_id", "member_id")
"""What a process is known by; the first that it has survives a restart."""
TABLES: Final = 11
"""Tables that are read for a page; `storms` twice."""


def collect(lake: Lake, groups: Sequence[str], tell: Callable[[str], None]) -> Contents:
    """The groups that stood still for longest, or those that are named.

    Args:
        tell: is told what is being read.

    Raises:
        PipelineError: no rebalance of such a group is in the lake.
    """
    tell("which groups stood still for longest")
    totals = lake.read(GROUPS.name).where("rebalance_count > 0")
    if groups:
        totals = totals.where(f.col("group").isin(list(groups)))
    longest = totals.orderBy(f.desc("stopped_total_ms"), f.desc("rebalance_count"), *GROUP)
    rows = plain(longest.limit(GROUPS_LISTED))
    if not rows:
        raise PipelineError("no rebalance of such a group is in the lake")
    pages = [
        GroupPage(cluster_id=row["cluster_id"], group=row["group"], figures=row)
        for row in rows[:GROUPS_SHOWN]
    ]
    _Reader(lake, pages, tell).fill()
    count = len(rows) if len(rows) < GROUPS_LISTED else totals.count()
    return Contents(pages, Listed(rows[GROUPS_SHOWN:], count - len(pages)))


def plain(frame: DataFrame) -> list[Row]:
    """The rows as the page takes them: moments as milliseconds, whatever zone the machine is in."""
    columns = [
        f.unix_millis(f.col(field.name)).alias(f"{field.name}_ms")
        if isinstance(field.dataType, TimestampType)
        else f.col(field.name)
        for field in frame.schema.fields
    ]
    return [row.asDict(recursive=True) for row in frame.select(*columns).collect()]


class _Reader:
    """Fills the pages, a query for each table."""

    def __init__(self, lake: Lake, pages: Sequence[GroupPage], tell: Callable[[str], None]) -> None:
        self._lake = lake
        self._pages = {(page.cluster_id, page.group): page for page in pages}
        self._tell = tell
        self._read_count = 0

    def fill(self) -> None:
        for key, rows in self._ranked(CAUSES, f.desc("stopped_total_ms"), most=50).items():
            self._pages[key].causes = rows.rows
        worst_wait = (f.desc("waited_for_total_ms"), f.asc("process"))
        for key, rows in self._ranked(SLOW_MEMBERS, *worst_wait).items():
            self._pages[key].slow_members = rows
        gaps = (f.desc("told_longest_ms"), f.asc("process"))
        for key, rows in self._ranked(HEARTBEAT_GAPS, *gaps).items():
            self._pages[key].heartbeat_gaps = rows
        partition = (f.asc("topic"), f.asc("partition"))
        for key, rows in self._ranked(UNAVAILABILITY, f.desc("total_ms"), *partition).items():
            self._pages[key].unavailability = rows
        for key, rows in self._ranked(FLAPPING, f.desc("moves"), *partition).items():
            self._pages[key].flapping = rows
        for key, rows in self._ranked(NEEDLESS, f.asc("sequence")).items():
            self._pages[key].needless = rows
        costliest = (f.desc("stopped_total_ms"), f.asc("first_sequence"))
        for key, rows in self._ranked(STORMS, *costliest, most=STORMS_SHOWN).items():
            self._pages[key].storms = rows
        for key, rows in self._ranked(ADVICE, f.asc("ordinal"), most=ADVICE_MAX).items():
            self._pages[key].advice = rows.rows
        self._fill_origins()
        self._fill_rebalances()
        self._fill_ownership()

    def _read(self, table: Table) -> DataFrame | None:
        """The rows of these groups; None if there is no such table yet."""
        self._read_count += 1
        self._tell(f"reading {table.name}, table {self._read_count} of {TABLES}")
        if not self._lake.exists(table.name):
            return None
        return self._lake.read(table.name).where(_any(_is(key) for key in self._pages))

    def _ranked(self, table: Table, *order: Column, most: int = ROWS_SHOWN) -> dict[Key, Listed]:
        frame = self._read(table)
        return {} if frame is None else _first(frame, order, most)

    def _fill_origins(self) -> None:
        storms = self._read(STORMS)
        if storms is None:
            return
        sums = storms.groupBy(*GROUP, "started_by").agg(
            f.count("*").alias("storm_count"),
            f.sum("rebalance_count").alias("rebalance_count"),
            _total("stopped_total_ms"),
        )
        order = (f.desc("stopped_total_ms"), f.asc("started_by"))
        for key, rows in _first(sums, order, ROWS_SHOWN).items():
            self._pages[key].started_by = rows.rows

    def _fill_rebalances(self) -> None:
        rebalances = self._read(REBALANCES)
        assert rebalances is not None, "groups are counted from them"
        for key, rows in _culprits(rebalances).items():
            self._pages[key].culprits = rows
        for page in self._pages.values():
            page.bin_ms = bin_of(page.figures["last_at_ms"] - page.figures["first_at_ms"])
        for key, rows in self._bins(rebalances).items():
            self._pages[key].by_time = rows
        for key, listed in _marks(rebalances, told_max(len(self._pages))).items():
            marks = sorted(listed.rows, key=lambda row: int(row["sequence"]))
            told = [in_words(row, json.loads(row["event"])) for row in marks if row["event"]]
            self._pages[key].marks = Listed(marks, listed.total)
            self._pages[key].told = Listed(told, listed.total)

    def _bins(self, rebalances: DataFrame) -> dict[Key, list[Row]]:
        bin_ms = f.coalesce(*(f.when(_is(key), page.bin_ms) for key, page in self._pages.items()))
        at_ms = f.floor(f.unix_millis("started_at") / bin_ms) * bin_ms
        sums = rebalances.groupBy(*GROUP, at_ms.cast("long").alias("at_ms")).agg(
            f.count("*").alias("rebalance_count"),
            _total("stopped_total_ms"),
        )
        return _by_group(plain(sums.orderBy("at_ms")))

    def _fill_ownership(self) -> None:
        table = self._read(PARTITIONS)
        if table is None:
            return
        counts = table.groupBy(*GROUP).agg(f.sum(f.size("partitions")).alias("times"))
        parts = {(row["cluster_id"], row["group"]): self._part(row) for row in counts.collect()}
        if not parts:
            return
        within = table.where(_any(_within(key, parts[key]) for key in parts))
        owned = within.select("*", f.explode("partitions").alias("partition")).drop("partitions")
        lines = _of_group().orderBy("topic", "partition")
        longest = _of_group().orderBy(
            f.desc_nulls_first("duration_ms"), "topic", "partition", "sequence"
        )
        numbered = owned.withColumn("line", f.dense_rank().over(lines)).withColumn(
            "lines", f.max("line").over(_of_group())
        )
        drawn = numbered.where(f.col("line") <= OWNED_PARTITIONS_MAX)
        ranked = drawn.withColumn("rank", f.row_number().over(longest))
        chosen = ranked.where(f.col("rank") <= OWNED_TIMES_MAX)
        for key, rows in _by_group(plain(chosen.orderBy("line", "from_at"))).items():
            from_ms, until_ms, about = parts[key]
            if len(rows) == OWNED_TIMES_MAX:
                about += " The shortest times are left out."
            self._pages[key].ownership = Ownership(rows, from_ms, until_ms, rows[0]["lines"], about)

    def _part(self, row: Any) -> tuple[int, int, str]:  # noqa: ANN401 - a row of Spark's.
        page = self._pages[row["cluster_id"], row["group"]]
        return drawn_part(page.figures, page.storms.rows, row["times"])


def _of_group() -> WindowSpec:
    # There is none before there is a session.
    return Window.partitionBy(*GROUP)


def _total(column: str) -> Column:
    return f.coalesce(f.sum(column), f.lit(0)).alias(column)


def _is(key: Key) -> Column:
    return f.col("cluster_id").eqNullSafe(key[0]) & (f.col("group") == key[1])


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions)


def _within(key: Key, part: tuple[int, int, str]) -> Column:
    from_ms, until_ms, _ = part
    began = f.unix_millis("from_at") <= until_ms
    goes_on = f.col("until_at").isNull() | (f.unix_millis("until_at") >= from_ms)
    return _is(key) & began & goes_on


def _by_group(rows: list[Row]) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["cluster_id"], row["group"]].append(row)
    return groups


def _first(frame: DataFrame, order: Sequence[Column], most: int) -> dict[Key, Listed]:
    """The first rows of each group, and how many it has."""
    ranked = frame.withColumns(
        {
            "rank": f.row_number().over(_of_group().orderBy(*order)),
            "rows_of_group": f.count("*").over(_of_group()),
        }
    ).where(f.col("rank") <= most)
    groups = _by_group(plain(ranked.orderBy("rank")))
    return {key: Listed(rows, rows[0]["rows_of_group"]) for key, rows in groups.items()}


def _culprits(rebalances: DataFrame) -> dict[Key, list[Row]]:
    of_kind = Window.partitionBy(*GROUP, "trigger_kind")
    counted = (
        rebalances.where(f.col("trigger_member_id").isNotNull())
        .withColumn("process", f.coalesce(*(f.col(f"trigger_{name}") for name in _NAMES)))
        .groupBy(*GROUP, "trigger_kind", "process")
        .agg(f.count("*").alias("rebalance_count"))
        .withColumn("processes", f.count("*").over(of_kind))
    )
    most = of_kind.orderBy(f.desc("rebalance_count"), "process")
    ranked = counted.withColumn("rank", f.row_number().over(most))
    return _by_group(plain(ranked.where(f.col("rank") <= CULPRITS_MAX).orderBy("rank")))


def _marks(rebalances: DataFrame, told: int) -> dict[Key, Listed]:
    """The costliest rebalances, and of the first of them what they say."""
    columns = (*GROUP, "sequence", "started_at", "trigger_kind", "stopped_total_ms", "event")
    order = (f.desc_nulls_last("stopped_total_ms"), f.asc("sequence"))
    rank = f.row_number().over(_of_group().orderBy(*order))
    event = f.when(rank <= told, f.col("event")).alias("event")
    chosen = rebalances.select(*(columns[:-1]), event)
    return _first(chosen, order, MARKS_MAX)
