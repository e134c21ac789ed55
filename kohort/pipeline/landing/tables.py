"""The tables of a topic: one for its records, and a quarantine for bad ones.

A record whose value cannot be decoded, or whose timestamp Spark cannot represent, is quarantined
unchanged and with the reason. Each batch is appended once to each table, the topic's table first;
the quarantine gets the records of the batch that the topic's table does not have. So when a batch
is repeated after a kill, the stored rows decide which records are quarantined, not the registry or
the options of the new run.
"""

import time
from dataclasses import replace
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from kohort.pipeline import jvm
from kohort.pipeline.kafka import Offsets, Topic
from kohort.pipeline.lake import Lake
from kohort.pipeline.landing.decoding import UNDECODABLE
from kohort.pipeline.landing.rows import PLACE, QUARANTINED, Shape
from kohort.pipeline.landing.timestamps import Reader

QUARANTINE: Final = "quarantined"
"""Quarantine tables are named ``quarantined/<topic>``."""

NOT_DECODED: Final = "could not be decoded when its batch was landed"
_ROWS: Final = "rows"
_COUNTED_S_MAX: Final = 10.0
"""Maximum wait for Spark's events with row counts. Spark may drop events under load; then a query
counts the rows."""


class Appended(NamedTuple):
    quarantined: int
    """Number of quarantined records."""
    uncounted: int | None = None
    """Number of records in a batch that was read again because the connector failed on a timestamp:
    the query's progress does not count them. None for other batches, or if unknown."""


class LandedTables:
    """The tables of a topic. All methods raise ReportedError."""

    def __init__(self, lake: Lake, table: str, topic: Topic, shape: Shape, reader: Reader) -> None:
        """Create missing tables; `table` is the name of the topic's table."""
        self.name: Final = table
        self.quarantine: Final = f"{QUARANTINE}/{topic.name}"
        self._lake, self._topic_id = lake, topic.topic_id
        self._shape, self._reader = shape, reader
        self.table_id: Final = lake.create(table, shape.schema, shape.partition_by)
        if shape.decoding is not None:
            # Created before the first batch: if the table exists, a later run without decoding also
            # looks for records in quarantine.
            self._make_quarantine()
        self.has_quarantine = lake.exists(self.quarantine)

    def append(
        self, rows: DataFrame, begins: Offsets, ends: Offsets, *, app_id: str, batch_id: int
    ) -> Appended:
        """Append a batch, in the columns of `Shape.landed`, unless it was appended before.

        `begins` and `ends` have the offsets of all the batch's partitions. If Spark's connector
        fails on a record's timestamp, a consumer in the driver reads that record and the next ones.
        """
        self._reader = replace(self._reader, by_driver=())
        while True:
            try:
                appended = self._append(rows, begins, ends, app_id=app_id, batch_id=batch_id)
            except Exception as error:
                reader = self._reader.past(error, ends)
                if reader is None:
                    raise
            else:
                return appended if self._reader.by_driver else appended._replace(uncounted=None)
            self._reader = reader
            self._make_quarantine()
            rows = self.between(begins, ends)

    def _append(
        self, rows: DataFrame, begins: Offsets, ends: Offsets, *, app_id: str, batch_id: int
    ) -> Appended:
        if not self.has_quarantine:
            self._lake.append_once(rows, self.name, app_id=app_id, batch_id=batch_id)
            return Appended(0)
        count: int | None = None
        bad: int | None = None
        if not self._lake.has_batch(self.name, app_id, batch_id):
            count, bad = self._append_good(rows, app_id, batch_id)
        if bad == 0 or self._lake.has_batch(self.quarantine, app_id, batch_id):
            return Appended(0, count)
        return Appended(self._quarantine_rest(begins, ends, app_id, batch_id), count)

    def between(self, begins: Offsets, ends: Offsets) -> DataFrame:
        """Return the records between the offsets, in the columns of `Shape.landed`; if there is a
        quarantine table, without the records that either table already has.
        """
        rows = self._shape.landed(self._reader.between(begins, ends), self._topic_id)
        if not self.has_quarantine:
            return rows
        changed = [(at, ends[index]) for index, at in begins.items() if at < ends[index]]
        first = min((begin for begin, _ in changed), default=0)
        behind = max((end for _, end in changed), default=0)
        present = self.offsets((first, behind - 1))
        return rows.join(present, list(PLACE), "left_anti")

    def _make_quarantine(self) -> None:
        self._lake.create(self.quarantine, QUARANTINED)
        self.has_quarantine = True

    def offsets(self, within: tuple[int, int] | None = None) -> DataFrame:
        """Return the partition and offset of each record in the topic's table or in quarantine;
        `within`: only of these offsets, first and last.
        """
        names = [self.name, self.quarantine] if self.has_quarantine else [self.name]
        places = reduce(DataFrame.union, [self._places(name, within) for name in names])
        return places if within is None else places.where(f.col("offset").between(*within))

    def _append_good(
        self, rows: DataFrame, app_id: str, batch_id: int
    ) -> tuple[int | None, int | None]:
        """Append the decodable rows; return the number of all rows and of undecodable rows, None if
        unknown.
        """
        if UNDECODABLE not in rows.columns:
            self._lake.append_once(rows, self.name, app_id=app_id, batch_id=batch_id)
            return None, 0
        counted = Observation()
        good = (
            rows.observe(
                counted,
                f.count(f.lit(1)).alias(_ROWS),
                f.count(UNDECODABLE).alias(UNDECODABLE),
            )
            .where(f.col(UNDECODABLE).isNull())
            .drop(UNDECODABLE)
        )
        self._lake.append_once(good, self.name, app_id=app_id, batch_id=batch_id)
        deadline_s = time.monotonic() + _COUNTED_S_MAX
        while not jvm.is_observed(counted):
            if time.monotonic() > deadline_s:
                return None, None
            time.sleep(0.01)
        return int(counted.get[_ROWS]), int(counted.get[UNDECODABLE])

    def _quarantine_rest(self, begins: Offsets, ends: Offsets, app_id: str, batch_id: int) -> int:
        """Quarantine the records of the batch that are missing from the topic's table.

        Reads the batch again outside the streaming query, whose progress thus counts rows once.
        """
        rows = self.between(begins, ends)
        reason = f.col(UNDECODABLE) if UNDECODABLE in rows.columns else f.lit(None)
        bad = (
            rows.withColumn(UNDECODABLE, f.coalesce(reason, f.lit(NOT_DECODED)))
            .select(QUARANTINED.names)
            .persist()
        )
        try:
            count = bad.count()
            if count:
                self._lake.append_once(bad, self.quarantine, app_id=app_id, batch_id=batch_id)
        finally:
            bad.unpersist()
        return count

    def _places(self, name: str, within: tuple[int, int] | None) -> DataFrame:
        rows = self._lake.read(name, within)
        return rows.where(f.col("topic_id") == self._topic_id).select(*PLACE)
