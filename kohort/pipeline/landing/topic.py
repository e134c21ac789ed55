"""Lands one topic in one table, exactly once, with one streaming query.

The table stores the ids of its batches, so a batch repeated after a kill is appended once. Records
lost before they could be read end the job, or are recorded as gaps.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from kohort.formats.text import counted
from kohort.insight.output import announce
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
"""Records per trigger if the size of the topic is unknown."""

OFFSETS_MIN: Final = 10_000
RANGES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class LandingSettings:
    stream: StreamSettings
    record_losses: bool
    """Whether lost records are recorded and skipped, or end the job."""
    begin: str | int
    """Where to begin a new topic: `earliest`, `latest`, or the first record from a time (ms) on."""
    backfill_ms: int | None
    """Also land records that precede the first landed offset, from this time on (ms since 1970);
    None to land no earlier records."""
    offsets_max: int | None
    bytes_max: int
    """Maximum size of a trigger's batch; `offsets_max` takes precedence."""
    min_partitions: int | None
    by_day: bool = False
    """Whether new tables are partitioned by the day of their records."""
    decoding: Decoding | None = None
    """How values are decoded; None to store them only as bytes."""


class TopicLander:
    """Lands a topic. A lander runs one query; a retry needs a new lander."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        lake: Lake,
        topic: str,
        settings: LandingSettings,
        add_quarantined: Callable[[str, int], None] = lambda _topic, _count: None,
        add_uncounted: Callable[[str, int, int], None] = lambda _topic, _batch_id, _count: None,
    ) -> None:
        """Open the topic, table and checkpoint, and check that they match.

        Args:
            add_quarantined: called with the number of quarantined records of a batch, unless it is
                0.
            add_uncounted: called with the number of records of a batch that its query's progress
                does not count.

        Raises:
            TopicMissingError, UnavailableError, ReportedError
            DataLossError: records are lost, and losses end the job.
        """
        self.name = topic
        self.table = f"{JOB}/{topic}"
        self._spark, self._lake, self._settings = spark, lake, settings
        self._report_quarantined, self._report_uncounted = add_quarantined, add_uncounted
        self.query: Final = TopicQuery(spark, kafka, JOB, topic, settings.stream, self._land)
        try:
            self._shape = Shape(self._is_by_day(), settings.decoding)
            self._tables = LandedTables(
                lake,
                self.table,
                self.query.topic,
                self._shape,
                Reader(spark, self.query.admin, topic, self._read_between),
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
        self.query.close()

    def diagnose(self) -> None:
        """Find the cause of a failure that Spark reports without a cause.

        Raises:
            ReportedError: the reason.
        """
        position = self.query.position()
        self.query.check_topic()
        self._check_losses(position)

    def _is_by_day(self) -> bool:
        """Whether the table is partitioned by day, which is decided when it is created."""
        if not self._lake.exists(self.table):
            return self._settings.by_day
        is_by_day = DAY in self._lake.read(self.table).columns
        if self._settings.by_day and not is_by_day:
            announce(
                f"land {self.name}: the table was created without partitions by day, and keeps that"
            )
        return is_by_day

    def _begin(self) -> Offsets:
        """Return the offsets of the first batch: those after the stored records; without stored
        records, those that the settings request.
        """
        self._report_recreated_topics()
        topic, admin = self.query.topic, self.query.admin
        is_new = not self._tables.has_quarantine and self._lake.version(self.table) == 0
        present = {} if is_new else self._after_table()
        if present:
            self.query.announce(f"continuing after the records in the table ({_shown(present)})")
            return admin.starts(topic) | present
        begin = self._settings.begin
        if isinstance(begin, int):
            return admin.at(topic, begin)
        return admin.ends(topic) if begin == "latest" else admin.starts(topic)

    def backfill(self, since_ms: int) -> int:
        """Land the records from `since_ms` to the first stored record; return their number.

        A repeated call finds no more records.
        """
        topic_id = self.query.topic.topic_id
        first, begun = self._offsets_in_table(f.min("offset")), self.query.begun
        ends = {index: first.get(index, at) for index, at in begun.items()}
        since = self._since(since_ms)
        wanted = _count(since, ends)
        if self._tables.has_quarantine:
            # Also search after the first stored offset: a job that was killed before it wrote to
            # the quarantine left holes there. `between` omits records that are stored.
            ends = begun
        if not _count(since, ends):
            return 0
        # New partitions begin at 0, so there are no earlier records.
        ends = {index: ends.get(index, 0) for index in since}
        begins = {index: min(at, ends[index]) for index, at in since.items()}
        rows = self._tables.between(begins, ends)
        # The application id contains the offset range, so the table rejects a second run for the
        # same range.
        offset_range = f"{partition_ranges(begins.items())} to {partition_ranges(ends.items())}"
        app_id = (
            f"{JOB}-backfill-{topic_id}-{hashlib.sha256(offset_range.encode()).hexdigest()[:16]}"
        )
        before = self._lake.version(self.table)
        self._append(rows, begins, ends, app_id, 0)
        return wanted if self._lake.version(self.table) > before else 0

    def _since(self, since_ms: int) -> Offsets:
        topic, admin = self.query.topic, self.query.admin
        starts = admin.starts(topic)
        return {
            index: max(at, starts.get(index, 0)) for index, at in admin.at(topic, since_ms).items()
        }

    def _after_table(self) -> Offsets:
        last = self._offsets_in_table(f.max("offset"))
        return {index: offset + 1 for index, offset in last.items()}

    def _offsets_in_table(self, chosen: Column) -> Offsets:
        """Return the minimum or maximum stored offset of each partition."""
        rows = self._tables.offsets().groupBy("partition").agg(chosen.alias("offset")).collect()
        return {row["partition"]: row["offset"] for row in rows}

    def _report_recreated_topics(self) -> None:
        """Report former topics of this name as gaps; how many records were missed is unknown."""
        files, place = self.query.files, self.query.place
        for topic_id in files.names(place):
            former = Checkpoint(files, f"{place}/{topic_id}")
            begin = former.stored_begin()
            position = begin | (former.ends(former.last_done()) or {})
            gaps_found = [Gap(index, at, None, gaps.RECREATED) for index, at in position.items()]
            reason = (
                f"{self.name} was deleted and recreated: its id was {topic_id} and is "
                f"{self.query.topic.topic_id}. Landed of the former topic: up to "
                f"{_shown(position)}"
            )
            self._report(reason, Topic(self.name, topic_id, ()), gaps_found)

    def _land(self, frame: DataFrame, batch_id: int) -> None:
        begin, end = self.query.position(batch_id - 1), self.query.position(batch_id)
        begin = {index: begin.get(index, 0) for index in end}
        appended = self._append(frame, begin, end, self._app_id, batch_id)
        if appended.uncounted is not None:
            self._report_uncounted(self.name, batch_id, appended.uncounted)
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
            self._report_quarantined(self.name, count)
        return appended

    def _read_between(self, begins: Offsets, ends: Offsets) -> DataFrame:
        return self.query.read_between(begins, ends, must_be_whole=not self._settings.record_losses)

    def _check_losses(self, position: Offsets) -> None:
        topic, admin = self.query.topic, self.query.admin
        gaps_found = gaps.lost(position, admin.starts(topic), admin.ends(topic))
        if gaps_found:
            self._report(gaps.sentence(self.name, gaps_found), topic, gaps_found)

    def _note_losses(self, begin: Offsets, end: Offsets) -> None:
        """Report the records of a batch that were deleted before the batch could read them."""
        starts = self.query.admin.starts(self.query.topic)
        gaps_found = [
            Gap(gap.partition, first, behind, gaps.RETENTION)
            for gap in gaps.lost(begin, starts, end)
            if gap.reason == gaps.RETENTION
            for first, behind in self._holes(gap, end.get(gap.partition, 0))
        ]
        if gaps_found:
            self._report(gaps.sentence(self.name, gaps_found), self.query.topic, gaps_found)

    def _holes(self, gap: Gap, batch_end: int) -> list[tuple[int, int]]:
        """Return the ranges of `gap` that are not stored, because their records were deleted before
        they were read.
        """
        assert gap.end is not None
        end = min(gap.end, batch_end)
        offsets = (
            self._tables.offsets((gap.first, end - 1))
            .where(f.col("partition") == gap.partition)
            .select("offset")
        )
        return gaps.missing(_contiguous_ranges(offsets), gap.first, end)

    def _report(self, reason: str, topic: Topic, gaps_found: list[Gap]) -> None:
        """Raise DataLossError or, with `record_losses`, store the gaps in the table of gaps."""
        if not self._settings.record_losses:
            raise DataLossError(
                f"{reason}\nTo continue without them, use --on-data-loss=record, which "
                f"records them in the table {GAPS_TABLE}."
            )
        self.query.announce(f"{reason}; recorded in the table {GAPS_TABLE}")
        now = datetime.now(UTC)
        rows = [
            (topic.name, topic.topic_id, gap.partition, gap.first, gap.end, gap.reason, now)
            for gap in gaps_found
        ]
        frame = self._spark.createDataFrame(rows, GAPS)
        with _GAPS_LOCK:
            self._lake.merge_new(frame, GAPS_TABLE, on=GAPS_KEY)

    def _offsets_per_trigger(self) -> int:
        """Return `offsets_max`; if None, an estimate of the offsets that make up `bytes_max`."""
        if self._settings.offsets_max is not None:
            return self._settings.offsets_max
        topic, admin = self.query.topic, self.query.admin
        records = sum(admin.ends(topic).values()) - sum(admin.starts(topic).values())
        size = admin.size(topic)
        if not records or not size:
            return OFFSETS_DEFAULT
        return max(OFFSETS_MIN, self._settings.bytes_max * records // size)


_GAPS_LOCK: Final = threading.Lock()
"""Held while gaps are written: Delta fails all but one of several concurrent merges into a
table."""


def _contiguous_ranges(offsets: DataFrame) -> list[tuple[int, int]]:
    """Return the first RANGES_MAX contiguous ranges of offsets, as (first, end) pairs."""
    numbered = offsets.select(
        "offset", (f.col("offset") - f.row_number().over(Window.orderBy("offset"))).alias("island")
    )
    rows = (
        numbered.groupBy("island")
        .agg(f.min("offset").alias("first"), f.max("offset").alias("last"))
        .orderBy("first")
        .limit(RANGES_MAX)
        .collect()
    )
    return [(row["first"], row["last"] + 1) for row in rows]


def _count(begins: Offsets, ends: Offsets) -> int:
    """Return the number of offsets between `begins` and `ends`."""
    return sum(max(ends.get(index, 0) - at, 0) for index, at in begins.items())


def _shown(offsets: Offsets) -> str:
    return partition_ranges(offsets.items())
