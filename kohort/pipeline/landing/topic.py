"""One topic into one table, exactly once, by one streaming query.

The table says which batches it has, so a batch that is done again after a kill is appended once.
Records that were lost before they could be read end the job, or are noted as gaps.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from kohort.insight.console import announce
from kohort.insight.counting import counted
from kohort.pipeline.checkpoint import Checkpoint
from kohort.pipeline.errors import DataLossError
from kohort.pipeline.kafka import Kafka, Offsets, Topic, partition_ranges
from kohort.pipeline.lake import Lake
from kohort.pipeline.landing import gaps
from kohort.pipeline.landing.decoding import Decoding
from kohort.pipeline.landing.gaps import Gap
from kohort.pipeline.landing.rows import DAY, GAPS, GAPS_KEY, Shape
from kohort.pipeline.landing.tables import Appended, LandedTables
from kohort.pipeline.landing.timestamps import Reader
from kohort.pipeline.streaming.query import Option, StreamSettings, TopicQuery

JOB: Final = "land"
GAPS_TABLE: Final = "gaps"

OFFSETS_DEFAULT: Final = 1_000_000
"""Records per trigger where it is not known how large a topic is."""

OFFSETS_MIN: Final = 10_000
ISLANDS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class LandingSettings:
    """How topics are landed; the command line says it."""

    stream: StreamSettings
    record_losses: bool
    """Whether lost records are noted and passed over, or end the job."""
    begin: str | int
    """Where a topic is begun that was never landed: `earliest`, `latest`, or the first record of a
    time in ms.
    """
    backfill_ms: int | None
    """The time from which on earlier records are landed of topics that were begun later; None: not
    at all."""
    offsets_max: int | None
    bytes_max: int
    """A trigger's share, one way or the other."""
    min_partitions: int | None
    by_day: bool = False
    """Whether tables that are made now are cut by the day of their records."""
    decoding: Decoding | None = None
    """What values are; None: bytes, of which nothing is known."""


class TopicLander:
    """See the module. A lander runs one query; a new attempt needs a new lander."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        lake: Lake,
        topic: str,
        settings: LandingSettings,
        put_aside: Callable[[str, int], None] = lambda _topic, _count: None,
        read_again: Callable[[str, int, int], None] = lambda _topic, _batch_id, _count: None,
    ) -> None:
        """Looks at topic, table and checkpoint, and says what is wrong with them.

        Args:
            put_aside: is told of how many records of a batch went into quarantine, if any did.
            read_again: is told the number of records of a batch, if its query has not counted them.

        Raises:
            TopicMissingError, UnavailableError, ReportedError
            DataLossError: records are gone, and that is to be an error.
        """
        self.name = topic
        self.table = f"{JOB}/{topic}"
        self._spark, self._lake, self._settings = spark, lake, settings
        self._put_aside, self._read_again = put_aside, read_again
        self.query: Final = TopicQuery(spark, kafka, JOB, topic, settings.stream, self._land)
        try:
            self._shape = Shape(self._is_by_day(), settings.decoding)
            self._tables = LandedTables(
                lake,
                self.table,
                self.query.topic,
                self._shape,
                Reader(spark, kafka, topic, self._read_between),
            )
            self._app_id = self.query.begin(self._tables.table_id, self._begin)
            position = self.query.position()
            if not settings.record_losses:
                self._check_losses(position)
            self.query.commit(position)
        except BaseException:
            self.close()
            raise

    def start(self) -> StreamingQuery:
        """The query, running."""
        options: dict[str, Option] = {
            "subscribe": self.name,
            "includeHeaders": True,
            "failOnDataLoss": not self._settings.record_losses,
            "maxOffsetsPerTrigger": self._offsets_per_trigger(),
        }
        if self._settings.min_partitions is not None:
            options["minPartitions"] = self._settings.min_partitions
        topic_id = self.query.topic.topic_id
        return self.query.start(options, lambda frame: self._shape.landed(frame, topic_id))

    def close(self) -> None:
        """Ends what the query does not own."""
        self.query.close()

    def diagnose(self) -> None:
        """Looks for the reason of a failure that Spark reports in its own words.

        Raises:
            ReportedError: this is it.
        """
        position = self.query.position()
        self.query.check_topic()
        self._check_losses(position)

    def _is_by_day(self) -> bool:
        """How a table is cut is said when it is made, and stays so."""
        if not self._lake.exists(self.table):
            return self._settings.by_day
        is_by_day = DAY in self._lake.read(self.table).columns
        if self._settings.by_day and not is_by_day:
            announce(f"land {self.name}: the table was made without days, and stays so")
        return is_by_day

    def _begin(self) -> Offsets:
        """Where a new checkpoint begins: behind what the table has, else as was asked for."""
        self._pass_over_namesakes()
        topic, admin = self.query.topic, self.query.admin
        is_new = not self._tables.has_quarantine and self._lake.version(self.table) == 0
        there = {} if is_new else self._behind_the_table()
        if there:
            self.query.announce(f"the table goes on where it ends ({_shown(there)})")
            return admin.starts(topic) | there
        begin = self._settings.begin
        if isinstance(begin, int):
            return admin.at(topic, begin)
        return admin.ends(topic) if begin == "latest" else admin.starts(topic)

    def backfill(self, since_ms: int) -> int:
        """Lands what is there since then and before the first record that is in the table; returns
        how many records. Done again, it finds nothing left.
        """
        topic_id = self.query.topic.topic_id
        first, begun = self._offsets_in_table(f.min("offset")), self.query.begun
        ends = {index: first.get(index, at) for index, at in begun.items()}
        since = self._since(since_ms)
        wanted = _count(since, ends)
        if self._tables.has_quarantine:
            # A kill between the two tables leaves holes, which the first offset does not tell of.
            ends = begun
        if not _count(since, ends):
            return 0
        # Partitions that came later begin at 0, and have nothing before it.
        ends = {index: ends.get(index, 0) for index in since}
        begins = {index: min(at, ends[index]) for index, at in since.items()}
        rows = self._tables.between(begins, ends)
        # A second run of the same stretch at the same time is declined by the table.
        stretch = f"{partition_ranges(begins.items())} to {partition_ranges(ends.items())}"
        app_id = f"{JOB}-backfill-{topic_id}-{hashlib.sha256(stretch.encode()).hexdigest()[:16]}"
        before = self._lake.version(self.table)
        self._append(rows, begins, ends, app_id, 0)
        return wanted if self._lake.version(self.table) > before else 0

    def _since(self, since_ms: int) -> Offsets:
        topic, admin = self.query.topic, self.query.admin
        starts = admin.starts(topic)
        return {
            index: max(at, starts.get(index, 0)) for index, at in admin.at(topic, since_ms).items()
        }

    def _behind_the_table(self) -> Offsets:
        last = self._offsets_in_table(f.max("offset"))
        return {index: offset + 1 for index, offset in last.items()}

    def _offsets_in_table(self, chosen: Column) -> Offsets:
        """One offset of each partition of which records are there."""
        rows = self._tables.offsets().groupBy("partition").agg(chosen.alias("offset")).collect()
        return {row["partition"]: row["offset"] for row in rows}

    def _pass_over_namesakes(self) -> None:
        """Says that earlier topics of this name ended, who knows where."""
        files, place = self.query.files, self.query.place
        for topic_id in files.names(place):
            former = Checkpoint(files, f"{place}/{topic_id}")
            begin = former.begin_of_any()
            position = begin | (former.ends(former.last_done()) or {})
            found = [Gap(index, at, None, gaps.RECREATED) for index, at in position.items()]
            reason = (
                f"{self.name} was deleted and recreated: its id was {topic_id} and is "
                f"{self.query.topic.topic_id}. Landed of the former one: up to {_shown(position)}"
            )
            self._report(reason, Topic(self.name, topic_id, ()), found)

    def _land(self, frame: DataFrame, batch_id: int) -> None:
        begin, end = self.query.position(batch_id - 1), self.query.position(batch_id)
        begin = {index: begin.get(index, 0) for index in end}
        appended = self._append(frame, begin, end, self._app_id, batch_id)
        if appended.read_again is not None:
            self._read_again(self.name, batch_id, appended.read_again)
        self.query.check_topic()
        if self._settings.record_losses:
            self._note_losses(begin, end)

    def _append(
        self, rows: DataFrame, begins: Offsets, ends: Offsets, app_id: str, batch_id: int
    ) -> Appended:
        appended = self._tables.append(rows, begins, ends, app_id=app_id, batch_id=batch_id)
        if count := appended.quarantined:
            self.query.announce(
                f"{counted(count, 'record')} quarantined in the table {self._tables.quarantine}"
            )
            self._put_aside(self.name, count)
        return appended

    def _read_between(self, begins: Offsets, ends: Offsets) -> DataFrame:
        return self.query.read_between(begins, ends, must_be_whole=not self._settings.record_losses)

    def _check_losses(self, position: Offsets) -> None:
        topic, admin = self.query.topic, self.query.admin
        found = gaps.lost(position, admin.starts(topic), admin.ends(topic))
        if found:
            self._report(gaps.sentence(self.name, found), topic, found)

    def _note_losses(self, begin: Offsets, end: Offsets) -> None:
        """Looks which of a batch's records were gone before the batch could read them."""
        starts = self.query.admin.starts(self.query.topic)
        found = [
            Gap(gap.partition, first, behind, gaps.RETENTION)
            for gap in gaps.lost(begin, starts, end)
            if gap.reason == gaps.RETENTION
            for first, behind in self._holes(gap, end.get(gap.partition, 0))
        ]
        if found:
            self._report(gaps.sentence(self.name, found), self.query.topic, found)

    def _holes(self, gap: Gap, batch_end: int) -> list[tuple[int, int]]:
        """Ranges of records that are gone now and were not read in time."""
        assert gap.end is not None
        end = min(gap.end, batch_end)
        offsets = (
            self._tables.offsets()
            .where(f.col("partition") == gap.partition)
            .where(f.col("offset").between(gap.first, end - 1))
            .select("offset")
        )
        return gaps.missing(_islands(offsets), gap.first, end)

    def _report(self, reason: str, topic: Topic, found: list[Gap]) -> None:
        """Ends the job, or notes the gaps and goes on."""
        if not self._settings.record_losses:
            raise DataLossError(
                f"{reason}\nTo go on without them: --on-data-loss=record, which notes them in the "
                f"table {GAPS_TABLE}."
            )
        self.query.announce(f"{reason}; noted in the table {GAPS_TABLE}")
        now = datetime.now(UTC)
        rows = [
            (topic.name, topic.topic_id, gap.partition, gap.first, gap.end, gap.reason, now)
            for gap in found
        ]
        frame = self._spark.createDataFrame(rows, GAPS)
        with _GAPS_LOCK:
            self._lake.merge_new(frame, GAPS_TABLE, on=GAPS_KEY)

    def _offsets_per_trigger(self) -> int:
        """The number asked for; else what the bytes of a trigger hold, by the topic's size."""
        if self._settings.offsets_max is not None:
            return self._settings.offsets_max
        topic, admin = self.query.topic, self.query.admin
        records = sum(admin.ends(topic).values()) - sum(admin.starts(topic).values())
        size = admin.size(topic)
        if not records or not size:
            return OFFSETS_DEFAULT
        return max(OFFSETS_MIN, self._settings.bytes_max * records // size)


_GAPS_LOCK: Final = threading.Lock()
"""Several queries may note gaps at the same time, and Delta would let all but one fail."""


def _islands(offsets: DataFrame) -> list[tuple[int, int]]:
    """Offsets without holes between them, as (first, behind the last), in order."""
    numbered = offsets.select(
        "offset", (f.col("offset") - f.row_number().over(Window.orderBy("offset"))).alias("island")
    )
    rows = (
        numbered.groupBy("island")
        .agg(f.min("offset").alias("first"), f.max("offset").alias("last"))
        .orderBy("first")
        .limit(ISLANDS_MAX)
        .collect()
    )
    return [(row["first"], row["last"] + 1) for row in rows]


def _count(begins: Offsets, ends: Offsets) -> int:
    """Offsets between the two."""
    return sum(max(ends.get(index, 0) - at, 0) for index, at in begins.items())


def _shown(offsets: Offsets) -> str:
    return partition_ranges(offsets.items())
