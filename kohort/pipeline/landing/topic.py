"""One topic into one table, exactly once, by one streaming query.

The query's checkpoint says which offsets a batch has; the table says which batches it has. A batch
that is done again after a kill reads the same offsets and is appended once. How far the table is
gets committed to a consumer group after each batch, so that Kafka's own tools see the lag.

Checkpoints lie under ``<checkpoints>/land/<topic>/<topic id>``: a topic that was deleted and
created anew begins a new one, and nobody mistakes its offsets for those of its namesake.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from kohort.pipeline.batches import Batches
from kohort.pipeline.checkpoint import Checkpoint, Claim, Paper
from kohort.pipeline.errors import DataLossError, PipelineError
from kohort.pipeline.files import Files
from kohort.pipeline.kafka import Kafka, Offsets, Topic, partition_ranges
from kohort.pipeline.lake import Lake
from kohort.pipeline.landing import gaps
from kohort.pipeline.landing.gaps import Gap
from kohort.pipeline.landing.rows import GAPS, GAPS_KEY, LANDED, landed
from kohort.pipeline.notice import tell

JOB: Final = "land"
GAPS_TABLE: Final = "gaps"

OFFSETS_DEFAULT: Final = 1_000_000
"""Records per trigger where nobody tells how large a topic is."""

OFFSETS_MIN: Final = 10_000
ISLANDS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Settings:
    """How topics are landed; the command line says it."""

    checkpoints: str
    group: str | None
    """Where progress is committed; None: nowhere."""
    available_now: bool
    interval_s: float
    """From the beginning of one trigger to the next, when it goes on for ever."""
    record_losses: bool
    """Whether lost records are noted and passed over, or end the job."""
    from_latest: bool
    """Where a topic is begun that was never landed: behind its last record, or at its first."""
    offsets_max: int | None
    bytes_max: int
    """A trigger's share, one way or the other."""
    min_partitions: int | None


class TopicLander:
    """See the module. A lander runs one query; a new attempt needs a new lander."""

    def __init__(
        self, spark: SparkSession, kafka: Kafka, lake: Lake, topic: str, settings: Settings
    ) -> None:
        """Looks at topic, table and checkpoint, and says what is wrong with them.

        Raises:
            TopicMissingError, UnavailableError, PipelineError
            DataLossError: records are gone, and that is to be an error.
        """
        self.name = topic
        self.table = f"{JOB}/{topic}"
        self.batches: Final = Batches(f"a batch of {topic}", self._land)
        self._spark, self._kafka, self._lake, self._settings = spark, kafka, lake, settings
        self._files = Files(spark)
        self._admin = kafka.admin(spark)
        self._group_refused = False
        try:
            self._topic = self._admin.topic(topic)
            self._begin()
        except BaseException:
            self._admin.close()
            raise

    def start(self) -> StreamingQuery:
        """The query, running."""
        reader = (
            self._spark.readStream.format("kafka")
            .options(**self._kafka.connector_options())
            .option("subscribe", self.name)
            .option("includeHeaders", "true")
            .option("startingOffsets", self._starting_offsets())
            .option("failOnDataLoss", str(not self._settings.record_losses).lower())
            .option("maxOffsetsPerTrigger", self._offsets_per_trigger())
        )
        if self._settings.min_partitions is not None:
            reader = reader.option("minPartitions", self._settings.min_partitions)
        writer = (
            reader.load()
            .writeStream.queryName(f"{JOB} {self.name}")
            .option("checkpointLocation", self._checkpoint.path)
            .foreachBatch(self.batches)
        )
        if self._settings.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.interval_s} seconds").start()

    def close(self) -> None:
        """Ends what the query does not own."""
        self._admin.close()

    def diagnose(self) -> None:
        """Looks for the reason of a failure that Spark reports in its own words.

        Raises:
            PipelineError: this is it.
        """
        done = self._checkpoint.last_done()
        self._check_topic()
        self._check_losses(self._position_after(done))

    def _begin(self) -> None:
        table_id = self._lake.create(self.table, LANDED)
        place = f"{self._settings.checkpoints}/{JOB}/{self.name}"
        claim = Claim(JOB, self._admin.cluster_id(), self.name, self._topic.topic_id, table_id)
        self._checkpoint = Checkpoint(self._files, f"{place}/{self._topic.topic_id}")
        paper = self._checkpoint.paper(claim)
        if paper is None:
            self._pass_over_namesakes(place)
            paper = self._checkpoint.begin(claim, self._first_offsets())
        self._paper: Paper = paper
        position = self._position_after(self._checkpoint.last_done())
        if not self._settings.record_losses:
            self._check_losses(position)
        self._commit(position)

    def _first_offsets(self) -> Offsets:
        """Where a new checkpoint begins: behind what the table has, else as was asked for."""
        there = {} if self._lake.version(self.table) == 0 else self._behind_the_table()
        if there:
            tell(f"land {self.name}: the table goes on where it ends ({_shown(there)})")
            return self._admin.starts(self._topic) | there
        if self._settings.from_latest:
            return self._admin.ends(self._topic)
        return self._admin.starts(self._topic)

    def _behind_the_table(self) -> Offsets:
        rows = (
            self._lake.read(self.table)
            .where(f.col("topic_id") == self._topic.topic_id)
            .groupBy("partition")
            .agg(f.max("offset").alias("last"))
            .collect()
        )
        return {row["partition"]: row["last"] + 1 for row in rows}

    def _pass_over_namesakes(self, place: str) -> None:
        """Says that earlier topics of this name ended, who knows where."""
        for topic_id in self._files.names(place):
            former = Checkpoint(self._files, f"{place}/{topic_id}")
            begin = former.begin_of_any()
            position = begin | (former.ends(former.last_done()) or {})
            found = [Gap(index, at, None, gaps.CREATED_ANEW) for index, at in position.items()]
            reason = (
                f"{self.name} was deleted and created anew: its id was {topic_id} and is "
                f"{self._topic.topic_id}. Landed of the former one: up to {_shown(position)}"
            )
            self._report(reason, Topic(self.name, topic_id, ()), found)

    def _land(self, frame: DataFrame, batch_id: int) -> None:
        begin = self._position_after(batch_id - 1)
        end = self._position_after(batch_id)
        self._check_topic()
        rows = landed(frame, self._topic.topic_id)
        self._lake.append_once(rows, self.table, app_id=self._paper.app_id, batch_id=batch_id)
        self._check_topic()
        if self._settings.record_losses:
            self._note_losses(begin, end)
        self._commit(end)

    def _position_after(self, batch_id: int) -> Offsets:
        """The next offset of each partition when this batch is done; -1: before the first."""
        return self._paper.begin | (self._checkpoint.ends(batch_id) or {})

    def _check_topic(self) -> None:
        """Raises if the topic is gone, or is another one of the same name."""
        now = self._admin.topic(self.name)
        if now.topic_id != self._topic.topic_id:
            raise TopicReplacedError(
                f"{self.name} was deleted and created anew while it was landed: its id was "
                f"{self._topic.topic_id} and is {now.topic_id}. The next run is about the new one."
            )
        self._topic = now

    def _check_losses(self, position: Offsets) -> None:
        found = gaps.lost(position, self._admin.starts(self._topic), self._admin.ends(self._topic))
        if found:
            self._report(gaps.told(self.name, found), self._topic, found)

    def _note_losses(self, begin: Offsets, end: Offsets) -> None:
        """Looks which of a batch's records were gone before the batch could read them."""
        starts = self._admin.starts(self._topic)
        found = [
            Gap(gap.partition, first, behind, gaps.RETENTION)
            for gap in gaps.lost(begin, starts, end)
            if gap.reason == gaps.RETENTION
            for first, behind in self._holes(gap, end.get(gap.partition, 0))
        ]
        if found:
            self._report(gaps.told(self.name, found), self._topic, found)

    def _holes(self, gap: Gap, batch_end: int) -> list[tuple[int, int]]:
        """Of records that are gone now, those that were not read in time."""
        assert gap.end is not None
        end = min(gap.end, batch_end)
        offsets = (
            self._lake.read(self.table)
            .where(f.col("topic_id") == self._topic.topic_id)
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
        tell(f"land {self.name}: {reason}; noted in the table {GAPS_TABLE}")
        now = datetime.now(UTC)
        rows = [
            (topic.name, topic.topic_id, gap.partition, gap.first, gap.end, gap.reason, now)
            for gap in found
        ]
        frame = self._spark.createDataFrame(rows, GAPS)
        with _GAPS_LOCK:
            self._lake.merge_new(frame, GAPS_TABLE, on=GAPS_KEY)

    def _commit(self, position: Offsets) -> None:
        """Tells the group; that this fails is told once, and is no reason to stop landing."""
        group = self._settings.group
        if group is None or self._group_refused:
            return
        try:
            self._admin.commit(group, self.name, position)
        except PipelineError as error:
            self._group_refused = "UnknownMember" in str(error) or "NotEmpty" in str(error)
            advice = "; it has members, name another with --group" if self._group_refused else ""
            tell(f"land {self.name}: nothing was committed to the group {group}: {error}{advice}")

    def _starting_offsets(self) -> str:
        begin = self._paper.begin
        by_partition = {str(index): begin.get(index, 0) for index in self._topic.partitions}
        return json.dumps({self.name: by_partition})

    def _offsets_per_trigger(self) -> int:
        """As was asked for; else what the bytes of a trigger hold, by the topic's size."""
        if self._settings.offsets_max is not None:
            return self._settings.offsets_max
        starts, ends = self._admin.starts(self._topic), self._admin.ends(self._topic)
        records = sum(ends.values()) - sum(starts.values())
        size = self._admin.size(self._topic)
        if not records or not size:
            return OFFSETS_DEFAULT
        return max(OFFSETS_MIN, self._settings.bytes_max * records // size)


class TopicReplacedError(DataLossError):
    """The topic of that name is another one now."""


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


def _shown(offsets: Offsets) -> str:
    return partition_ranges(offsets.items())
