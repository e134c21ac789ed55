"""Records of the history into tables, each event once, however often its record comes.

An event is known by cluster, group and sequence number. Every table takes rows by their key and
keeps the first, so a batch that was half written before a kill is simply written again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, TypeAlias

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kohort.pipeline.append_transaction import AppendTransaction
from kohort.pipeline.lake import Lake
from kohort.pipeline.plans import are_few, fit_for, settings
from kohort.pipeline.rebalances.conflicts import again_on_conflict
from kohort.pipeline.schemas import (
    AVOIDED,
    HISTORY,
    MEMBERS,
    QUARANTINE,
    REBALANCES,
    RUNNING,
    Table,
)
from kohort.pipeline.transformations import history, parsing
from kohort.pipeline.transformations.common import EVENT, TOGETHER

ROWS_TOGETHER: Final = 200
_RUNNING: Final = "running"

_TABLES: Final = (MEMBERS, REBALANCES, AVOIDED)
"""Tables that complete events go into. Members first: a reader who sees a rebalance finds them."""


_Key: TypeAlias = tuple[str, str, int]
"""EVENT."""


@dataclass(slots=True)
class Tally:
    """What came in, repetitions included."""

    rebalances: int = 0
    avoided: int = 0
    running: int = 0
    quarantined: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Why, of those that are in quarantine."""
    keys: list[_Key] | None = None
    """The keys of complete events, if they are few."""

    def add(self, other: "Tally") -> None:
        self.rebalances += other.rebalances
        self.avoided += other.avoided
        self.running += other.running
        self.quarantined += other.quarantined
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    def shown(self) -> str:
        text = f"{self.rebalances:,} rebalances, {self.avoided:,} avoided"
        if self.running:
            text += f", {self.running:,} of them told of while they ran"
        if self.quarantined:
            reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(self.reasons.items()))
            text += f"; {self.quarantined:,} in quarantine ({reasons})"
        return text


class Ingest:
    """Writes batches of RAW records. Raises PipelineError."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        with fit_for(lake.spark, 0):
            ids = again_on_conflict(
                lambda: {table.name: lake.create(table.name, table.schema) for table in HISTORY}
            )
        self.table_id: Final = ids[REBALANCES.name]
        """Id of the table of rebalances: its checkpoints belong to it."""

    def take(self, raw: DataFrame, count: int | None = None) -> Tally:
        """One batch; `count` is how many records it has, or about, if that is known."""
        # Rows that are kept in memory are put together by so many, and an event can be half a
        # megabyte: Spark's 10,000 would be more than a driver has.
        wanted = {TOGETHER: str(ROWS_TOGETHER)}
        # A streaming query has a session of its own, and tables are of the job's.
        spark, own = self._lake.spark, raw.sparkSession
        with settings(own, wanted), fit_for(own, count), fit_for(spark, count):
            parsed = parsing.parsed(raw)
            if are_few(count):
                # What is made of it is planned from here.
                parsed = parsed.localCheckpoint()
                return again_on_conflict(lambda: self._take(parsed, is_few=True))
            parsed.persist()
            try:
                return again_on_conflict(lambda: self._take(parsed, is_few=False))
            finally:
                parsed.unpersist()

    def _take(self, parsed: DataFrame, *, is_few: bool) -> Tally:
        tally = _tally_of_few(parsed) if is_few else _tally(parsed)
        good = parsing.good(parsed)
        if tally.quarantined:
            self._merge(parsing.quarantined(parsed), QUARANTINE)
        if tally.running:
            self._merge(history.running(parsing.unfinished(good)), RUNNING)
        if tally.rebalances or tally.avoided:
            self._take_events(parsing.complete(good), tally)
        return tally

    def _take_events(self, events: DataFrame, tally: Tally) -> None:
        """Repetitions and contradictions are rare, and to sort them out costs more than all else:
        it is asked first, by their keys alone, whether there are any.
        """
        appends = {table.name: self._lake.begin_append(table.name) for table in _TABLES}
        if self._are_new(events, tally.keys):
            self._write(events, tally, appends)
            return
        accepted, refused = (frame.persist() for frame in self._settle(events))
        try:
            count = refused.count()
            if count:
                self._merge(refused, QUARANTINE)
                tally.add(Tally(quarantined=count, reasons={"sequence_taken": count}))
            self._write(accepted, tally)
        finally:
            refused.unpersist()
            accepted.unpersist()

    def _are_new(self, events: DataFrame, few: Sequence[_Key] | None) -> bool:
        """Each there once, and none in the tables, not even as a kill may have left it: with
        members, and without its rebalance. `few` are their keys, if they are few.
        """
        if few is not None:
            return len(set(few)) == len(few) and not self._known(few)
        keys = parsing.keyed(events).select(*EVENT)
        together = keys
        for table in _TABLES:
            # As it was made: there is nothing to be read.
            if self._lake.version(table.name):
                known = self._lake.read(table.name).select(*EVENT)
                repeated = known.join(f.broadcast(keys), list(EVENT), "left_semi")
                together = together.unionByName(repeated)
        # A key that is in a table is there at least once beside its own event.
        return together.groupBy(*EVENT).count().where(f.col("count") > 1).isEmpty()

    def _known(self, keys: Sequence[_Key]) -> bool:
        """Whether one of a few keys is in one of the tables. Files are passed over, as a rule all,
        that have none of these groups, or only earlier events of them.
        """
        groups = {group for _, group, _ in keys}
        numbers = [sequence for _, _, sequence in keys]
        may_be = f.col("group").isin(*groups) & f.col("sequence").between(
            min(numbers), max(numbers)
        )
        found = [
            self._lake.read(table.name).where(may_be).select(*EVENT)
            for table in _TABLES
            # As it was made: there is nothing to be read.
            if self._lake.version(table.name)
        ]
        if not found:
            return False
        rows = reduce(DataFrame.unionAll, found).distinct().collect()
        return not {tuple(row) for row in rows}.isdisjoint(keys)

    def _write(
        self,
        events: DataFrame,
        tally: Tally,
        appends: Mapping[str, AppendTransaction] | None = None,
    ) -> None:
        """Events of which each is there once; with `appends`, none was in a table then, and a merge
        would ask each table again.
        """

        def add(frame: DataFrame, table: Table) -> None:
            if appends is not None:
                self._lake.append(frame, table.name, appends[table.name])
            else:
                self._merge(frame, table, is_unique=True)

        # In the order of _TABLES.
        if tally.rebalances:
            add(history.members(events), MEMBERS)
            add(history.rebalances(events), REBALANCES)
        if tally.avoided:
            add(history.avoided(events), AVOIDED)

    def _settle(self, events: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Which events go into the tables, and which contradict one that is there."""
        once = parsing.without_repetitions(parsing.identified(events))
        in_order = Window.partitionBy(*EVENT).orderBy("offset")
        ranked = once.withColumn("rank", f.row_number().over(in_order))
        compared = ranked.join(self._fingerprints(once), list(EVENT), "left")
        is_other = f.when(
            f.col("known").isNotNull(), f.col("known") != f.col("fingerprint")
        ).otherwise(f.col("rank") > 1)
        return compared.where(~is_other), parsing.refused(compared.where(is_other))

    def _fingerprints(self, events: DataFrame) -> DataFrame:
        """The fingerprints of those of `events` whose numbers the tables have already."""
        keys = events.select(*EVENT).distinct()
        there = [
            self._lake.read(table.name).select(*EVENT, "event") for table in (REBALANCES, AVOIDED)
        ]
        both = there[0].unionByName(there[1])
        # Few or none, and few columns are read to know it; the events' text only if there are.
        repeated = both.select(*EVENT).join(f.broadcast(keys), list(EVENT), "left_semi")
        if repeated.isEmpty():
            both = both.limit(0)
        return both.join(f.broadcast(keys), list(EVENT), "left_semi").select(
            *EVENT, parsing.fingerprint_of_text(f.col("event")).alias("known")
        )

    def _merge(self, frame: DataFrame, table: Table, *, is_unique: bool = False) -> None:
        self._lake.merge_new(frame, table.name, on=table.key, is_unique=is_unique)


def _tally(parsed: DataFrame) -> Tally:
    tally = Tally()
    for reason, kind, count in _kinds(parsed).groupBy("reason", "kind").count().collect():
        tally.add(_counted(reason, kind, count))
    return tally


def _tally_of_few(parsed: DataFrame) -> Tally:
    """With their keys: one query, and Python counts them."""
    tally = Tally(keys=[])
    assert tally.keys is not None
    for reason, kind, *key in _kinds(parsed, *EVENT).collect():
        tally.add(_counted(reason, kind, 1))
        if reason is None and kind != _RUNNING:
            tally.keys.append((key[0], key[1], key[2]))
    return tally


def _kinds(parsed: DataFrame, *more: str) -> DataFrame:
    is_running = f.coalesce(f.col("event.outcome") == _RUNNING, f.lit(False))
    kind = f.when(is_running, _RUNNING).otherwise(f.col("event.kind"))
    return parsing.keyed(parsed).select(
        "reason", f.when(f.col("reason").isNull(), kind).alias("kind"), *more
    )


def _counted(reason: str | None, kind: str | None, count: int) -> Tally:
    if reason is not None:
        return Tally(quarantined=count, reasons={reason: count})
    if kind == "avoided":
        return Tally(avoided=count)
    return Tally(running=count) if kind == _RUNNING else Tally(rebalances=count)
