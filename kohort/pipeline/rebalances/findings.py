"""What only several events together tell, made again for each group that has new events.

Why again, and not carried on from batch to batch: a late event, a gap that closes, or another
threshold changes what was found before, and a kill may fall between any two writes. What is made
from the tables of the history alone is right whenever it is made. A batch costs as much as the
history of its groups, of which the large part, stops of members, is looked at for `days` only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kohort.pipeline.errors import ConflictError
from kohort.pipeline.lake import Lake
from kohort.pipeline.rebalances.conflicts import again_on_conflict
from kohort.pipeline.schemas import (
    AVOIDED,
    CAUSES,
    FINDINGS,
    FLAPPING,
    GROUPS,
    HEARTBEAT_GAPS,
    MEMBERS,
    NEEDLESS,
    PARTITIONS,
    REBALANCES,
    RUNNING,
    SEQUENCE_GAPS,
    SLOW_MEMBERS,
    STORMS,
    UNAVAILABILITY,
    Table,
)
from kohort.pipeline.transformations.common import GROUP, TOGETHER
from kohort.pipeline.transformations.flapping import flapping
from kohort.pipeline.transformations.ownership import partitions, unavailability
from kohort.pipeline.transformations.storms import storms
from kohort.pipeline.transformations.summaries import (
    causes,
    groups,
    needless,
    numbers,
    sequence_gaps,
)
from kohort.pipeline.transformations.waiting import heartbeat_gaps, slow_members

DAY_MS: Final = 24 * 3600 * 1000
ROWS_TOGETHER: Final = 4_000
"""Rows of members, with the names of a hundred partitions at most, that are kept as one piece."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What counts as much; the command line says it."""

    days: int = 35
    """How far back from the newest event of a group findings go."""
    storm_quiet_ms: int = 60_000
    storm_size: int = 3
    flapping_moves: int = 3
    flapping_window_ms: int = 3_600_000


class Findings:
    """Renews the tables FINDINGS. Raises PipelineError."""

    def __init__(self, lake: Lake, thresholds: Thresholds) -> None:
        self._lake = lake
        self._thresholds = thresholds

    def renew(self, *, everything: bool = False) -> int:
        """For groups whose row in `groups` does not fit their events; returns how many."""
        is_all = everything

        def attempt() -> int:
            nonlocal is_all
            wanted, is_all = is_all, True
            return self._renew_changed(everything=wanted)

        # Of what was written beside another run, it is not known which events it has seen.
        return again_on_conflict(attempt)

    def _renew_changed(self, *, everything: bool) -> int:
        is_whole = all(self._lake.exists(table.name) for table in FINDINGS)
        version = self._version()
        groups = self._groups().persist()
        changed = self._changed(groups, everything=everything or not is_whole).persist()
        try:
            count = changed.count()
            if count:
                # If a table is missing, these are all groups, and what is written makes the tables.
                self._renew(changed, version, is_all=not is_whole or count == groups.count())
            elif not is_whole:
                for table in FINDINGS:
                    self._lake.create(table.name, table.schema)
        finally:
            changed.unpersist()
            groups.unpersist()
        return count

    def _groups(self) -> DataFrame:
        """All there are, with what tells whether they have changed."""
        events = numbers(self._lake.read(REBALANCES.name), self._lake.read(AVOIDED.name))
        return events.groupBy(*GROUP).agg(
            f.count("*").alias("event_count"),
            f.max("sequence").alias("last_sequence"),
            f.max("at").alias("last_at"),
        )

    def _changed(self, groups: DataFrame, *, everything: bool) -> DataFrame:
        """Groups, and since when their findings are wanted."""
        if not everything:
            done = self._lake.read(GROUPS.name).select(*GROUP, "event_count", "last_sequence")
            groups = groups.join(done, [*GROUP, "event_count", "last_sequence"], "left_anti")
        since_ms = f.unix_millis("last_at") - self._thresholds.days * DAY_MS
        return groups.select(*GROUP, f.timestamp_millis(since_ms).alias("since"))

    def _version(self) -> int:
        """Version of the table that each renewal writes last; -1 if there is none."""
        return self._lake.version(GROUPS.name) if self._lake.exists(GROUPS.name) else -1

    def _renew(self, changed: DataFrame, version: int, *, is_all: bool) -> None:
        # Without their events, rows are small again.
        changed.sparkSession.conf.set(TOGETHER, ROWS_TOGETHER)
        history = {
            table.name: self._lake.read(table.name).join(f.broadcast(changed), list(GROUP))
            for table in (REBALANCES, AVOIDED, MEMBERS, RUNNING)
        }
        rebalances = history[REBALANCES.name].drop("event").persist()
        members = history[MEMBERS.name].persist()
        try:
            makers = self._makers(
                changed, rebalances, members, history[AVOIDED.name], history[RUNNING.name]
            )
            for table in FINDINGS:
                rows = makers[table]()
                if not is_all:
                    others = self._others(table, changed)
                    rows = others.unionByName(rows, allowMissingColumns=True)
                if table is GROUPS and self._version() != version:
                    raise ConflictError(
                        f"the findings of {self._lake.root}: another run renewed them meanwhile"
                    )
                # One transaction: readers see the rows of before, or those of now.
                self._lake.overwrite(rows, table.name)
        finally:
            rebalances.unpersist()
            members.unpersist()

    def _makers(
        self,
        changed: DataFrame,
        rebalances: DataFrame,
        members: DataFrame,
        avoided: DataFrame,
        running: DataFrame,
    ) -> Mapping[Table, Callable[[], DataFrame]]:
        """What makes the rows of each table; some read what was written just before."""
        limits = self._thresholds
        lately = rebalances.where(f.col("started_at") >= f.col("since"))
        members_lately = members.where(f.col("started_at") >= f.col("since"))
        avoided_lately = avoided.where(f.col("at") >= f.col("since"))

        def owned() -> DataFrame:
            rows = partitions(members, rebalances, members_lately)
            is_late = f.col("until_at").isNull() | (f.col("until_at") >= f.col("since"))
            return rows.join(f.broadcast(changed), list(GROUP)).where(is_late).drop("since")

        def found(table: Table) -> DataFrame:
            """The table as it was just written."""
            return self._lake.read(table.name).join(f.broadcast(changed), list(GROUP), "left_semi")

        return {
            PARTITIONS: owned,
            UNAVAILABILITY: lambda: unavailability(found(PARTITIONS)),
            STORMS: lambda: storms(
                lately, members_lately, quiet_ms=limits.storm_quiet_ms, size=limits.storm_size
            ),
            FLAPPING: lambda: flapping(
                found(PARTITIONS), moves=limits.flapping_moves, window_ms=limits.flapping_window_ms
            ),
            SLOW_MEMBERS: lambda: slow_members(lately, members_lately),
            HEARTBEAT_GAPS: lambda: heartbeat_gaps(lately, members_lately),
            CAUSES: lambda: causes(lately, avoided_lately),
            NEEDLESS: lambda: needless(lately),
            SEQUENCE_GAPS: lambda: sequence_gaps(numbers(rebalances, avoided), running),
            GROUPS: lambda: groups(rebalances, avoided, found(UNAVAILABILITY), found(STORMS)),
        }

    def _others(self, table: Table, changed: DataFrame) -> DataFrame:
        """The rows of groups that have not changed."""
        return self._lake.read(table.name).join(f.broadcast(changed), list(GROUP), "left_anti")
