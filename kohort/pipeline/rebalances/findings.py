"""What only several events together tell, made again for each group that has new events.

Why again, and not carried on from batch to batch: a late event, a gap that closes, or another
threshold changes what was found before, and a kill may fall between any two writes. What is made
from the tables of the history alone is right whenever it is made. A batch costs as much as the
history of its groups, of which the large part, stops of members, is looked at for `days` only; of
the tables, the files are written again that have rows of these groups.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from kohort.pipeline.errors import ConflictError
from kohort.pipeline.lake import Lake
from kohort.pipeline.plans import are_few, fit_for, settings
from kohort.pipeline.rebalances.conflicts import again_on_conflict
from kohort.pipeline.replace_transaction import FILE_ROWS, Groups, in_order
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
from kohort.pipeline.transformations.common import GROUP, TOGETHER, count_of, total
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

LISTED_MAX: Final = 200
"""Groups that a query may name one by one: Delta then passes over files that have none of them."""

_FILE_ROWS: Final = "spark.sql.files.maxRecordsPerFile"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What counts as much; the command line says it."""

    days: int = 35
    """How far back from the newest event of a group findings go."""
    storm_quiet_ms: int = 60_000
    storm_size: int = 3
    flapping_moves: int = 3
    flapping_window_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class _Work:
    """What one renewal is about."""

    changed: DataFrame
    """Groups, and since when their findings are wanted."""
    groups: Groups
    """The same groups, one by one if they are not too many."""
    events: int
    """How many these groups have."""
    version: int
    """What the table that each renewal writes last was at; -1 if there is none."""
    is_all: bool
    """Whether there are no other groups, or none whose rows can stay."""


class Findings:
    """Renews the tables FINDINGS. Raises PipelineError."""

    def __init__(
        self,
        lake: Lake,
        thresholds: Thresholds,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`tell` gets a line on each table that is about to be made."""
        self._lake = lake
        self._thresholds = thresholds
        self._tell = tell

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
        is_whole = all(self._lake.fits(table.name, table.schema) for table in FINDINGS)
        version = self._version()
        # Of each event, four short columns are looked at.
        with fit_for(self._lake.spark, 0):
            groups = self._groups(everything=everything or not is_whole).localCheckpoint()
            counted = self._counted(groups)
            changed = groups.where("is_changed").select(*GROUP, self._since())
            chosen = Groups(changed, self._listed(changed, counted["changed"]))
        if counted["changed"]:
            is_all = not is_whole or counted["changed"] == counted["groups"]
            # If a table is missing, these are all groups, and what is written makes the tables.
            self._renew(_Work(changed, chosen, counted["events"], version, is_all))
        elif everything or not is_whole:
            # There is no event, or none any more.
            for table in FINDINGS:
                nothing = self._lake.spark.createDataFrame([], table.schema)
                self._lake.overwrite(nothing, table.name)
        return int(counted["changed"])

    def _groups(self, *, everything: bool) -> DataFrame:
        """All there are, with what tells whether they have changed."""
        events = numbers(self._lake.read(REBALANCES.name), self._lake.read(AVOIDED.name))
        groups = events.groupBy(*GROUP).agg(
            f.count("*").alias("event_count"),
            f.max("sequence").alias("last_sequence"),
            f.max("at").alias("last_at"),
        )
        if everything:
            return groups.withColumn("is_changed", f.lit(True))
        known = (*GROUP, "event_count", "last_sequence")
        done = self._lake.read(GROUPS.name).select(*known, f.lit(True).alias("is_done"))
        return groups.join(done, list(known), "left").withColumn(
            "is_changed", f.col("is_done").isNull()
        )

    def _counted(self, groups: DataFrame) -> Row:
        row = groups.agg(
            f.count("*").alias("groups"),
            count_of(f.col("is_changed")).alias("changed"),
            total(f.when(f.col("is_changed"), f.col("event_count"))).alias("events"),
        ).first()
        assert row is not None
        return row

    def _since(self) -> Column:
        since_ms = f.unix_millis("last_at") - self._thresholds.days * DAY_MS
        return f.timestamp_millis(since_ms).alias("since")

    def _listed(self, changed: DataFrame, count: int) -> frozenset[tuple[str, str]] | None:
        if count > LISTED_MAX:
            return None
        rows = changed.select(*GROUP).collect()
        return frozenset((row["cluster_id"], row["group"]) for row in rows)

    def _version(self) -> int:
        return self._lake.version(GROUPS.name) if self._lake.exists(GROUPS.name) else -1

    def _renew(self, work: _Work) -> None:
        spark = self._lake.spark
        # Without their events, rows are small again.
        wanted = {TOGETHER: str(ROWS_TOGETHER), _FILE_ROWS: str(FILE_ROWS)}
        with settings(spark, wanted), fit_for(spark, work.events), ExitStack() as kept:

            def keep(frame: DataFrame) -> DataFrame:
                """Worked out once, for as long as this lasts."""
                if are_few(work.events):
                    # Queries that are made of it begin here, and are planned from here only.
                    return frame.coalesce(1).localCheckpoint()
                kept.callback(frame.persist().unpersist)
                return frame

            made = self._made(work, keep)
            for number, table in enumerate(FINDINGS, 1):
                self._tell(f"{table.name}, table {number} of {len(FINDINGS)}")
                of, rows = next(made)
                assert of is table, f"{of.name} is out of order"
                if table is GROUPS and self._version() != work.version:
                    raise ConflictError(
                        f"the findings of {self._lake.root}: another run renewed them meanwhile"
                    )
                self._write(table, rows, work)

    def _write(self, table: Table, rows: DataFrame, work: _Work) -> None:
        """One transaction: readers see the rows of before, or those of now."""
        are_many = table is PARTITIONS and not are_few(work.events)
        if work.is_all:
            self._lake.overwrite(in_order(rows, are_many=are_many), table.name)
        else:
            self._lake.replace(rows, table.name, work.groups, are_many=are_many)

    def _made(
        self, work: _Work, keep: Callable[[DataFrame], DataFrame]
    ) -> Iterator[tuple[Table, DataFrame]]:
        """The rows of each table, in the order of FINDINGS."""
        limits = self._thresholds
        rebalances = keep(self._history(REBALANCES, work).drop("event"))
        members = keep(self._history(MEMBERS, work))
        avoided = self._history(AVOIDED, work).drop("event")
        running = self._history(RUNNING, work).drop("event")
        lately = rebalances.where(f.col("started_at") >= f.col("since"))
        members_lately = members.where(f.col("started_at") >= f.col("since"))
        avoided_lately = avoided.where(f.col("at") >= f.col("since"))

        owned = partitions(members, rebalances, members_lately)
        is_late = f.col("until_at").isNull() | (f.col("until_at") >= f.col("since"))
        owned = owned.join(f.broadcast(work.changed), list(GROUP)).where(is_late).drop("since")
        owned = keep(owned)
        yield PARTITIONS, owned
        idle = keep(unavailability(owned))
        yield UNAVAILABILITY, idle
        bursts = keep(
            storms(lately, members_lately, quiet_ms=limits.storm_quiet_ms, size=limits.storm_size)
        )
        yield STORMS, bursts
        yield (
            FLAPPING,
            flapping(owned, moves=limits.flapping_moves, window_ms=limits.flapping_window_ms),
        )
        yield SLOW_MEMBERS, slow_members(lately, members_lately)
        yield HEARTBEAT_GAPS, heartbeat_gaps(lately, members_lately)
        yield CAUSES, causes(lately, avoided_lately)
        yield NEEDLESS, needless(lately)
        yield SEQUENCE_GAPS, sequence_gaps(numbers(rebalances, avoided), running)
        yield GROUPS, groups(rebalances, avoided, idle, bursts)

    def _history(self, table: Table, work: _Work) -> DataFrame:
        """The rows of these groups, with `since`."""
        rows = self._lake.read(table.name)
        if (are_of := work.groups.are_of()) is not None:
            rows = rows.where(are_of)
        return rows.join(f.broadcast(work.changed), list(GROUP))
