"""The history's topic by the connector's streaming read, each batch into the tables once.

The query's checkpoint says which offsets a batch has. A batch that is done again after a kill
reads the same offsets, and the tables take each event once. Checkpoints lie under
``<checkpoints>/rebalances/<topic>/<topic id>``; a topic that was deleted and created anew begins
a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from kohort.pipeline.batches import Batches
from kohort.pipeline.checkpoint import Checkpoint, Claim, Paper
from kohort.pipeline.errors import PipelineError
from kohort.pipeline.faults import explain
from kohort.pipeline.files import Files
from kohort.pipeline.kafka import Kafka, Offsets
from kohort.pipeline.notice import tell
from kohort.pipeline.transformations.parsing import RAW

JOB: Final = "rebalances"
TOPIC: Final = "__rebalance_history"
OFFSETS_DEFAULT: Final = 20_000
"""Events per trigger: with 1,000 members each one may be half a megabyte."""

_OFFSETS_BY_CONSUMER: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
"""The connector's other way, through an admin client, does not see internal topics, which the
history is: it would read nothing and say nothing. A consumer with assigned partitions sees all,
and joins no group.
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the topic is read; the command line says it."""

    topic: str
    checkpoints: str
    group: str | None
    """Where progress is committed; None: nowhere."""
    available_now: bool
    interval_s: float
    offsets_max: int


class HistoryStream:
    """See the module."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        settings: Settings,
        *,
        table_id: str,
        take: Callable[[DataFrame], None],
    ) -> None:
        """Looks at topic and checkpoint, and says what is wrong with them.

        `take` gets each batch as RAW records, once or again; `table_id` is of the table that they
        end up in.

        Raises:
            TopicMissingError, UnavailableError, PipelineError
        """
        self._spark, self._kafka, self._settings = spark, kafka, settings
        self._take = take
        self._batches = Batches(f"a batch of {settings.topic}", self._batch)
        self._admin = kafka.admin(spark)
        try:
            self._topic = self._admin.topic(settings.topic)
            self.cluster_id: Final = self._admin.cluster_id()
            place = f"{settings.checkpoints}/{JOB}/{settings.topic}/{self._topic.topic_id}"
            self._checkpoint = Checkpoint(Files(spark), place)
            claim = Claim(JOB, self.cluster_id, settings.topic, self._topic.topic_id, table_id)
            paper = self._checkpoint.paper(claim)
            if paper is None:
                paper = self._checkpoint.begin(claim, self._admin.starts(self._topic))
            self._paper: Paper = paper
            self._tell_losses()
        except BaseException:
            self._admin.close()
            raise

    def start(self) -> StreamingQuery:
        """The query, running."""
        begin = {str(index): self._paper.begin.get(index, 0) for index in self._topic.partitions}
        reader = (
            self._spark.readStream.format("kafka")
            .options(**self._kafka.connector_options())
            .option("assign", json.dumps({self._settings.topic: list(self._topic.partitions)}))
            .option("startingOffsets", json.dumps({self._settings.topic: begin}))
            # What retention took is missing in the sequence of its group, and told of there.
            .option("failOnDataLoss", "false")
            .option("maxOffsetsPerTrigger", self._settings.offsets_max)
        )
        writer = (
            reader.load()
            .select(f.lit(self.cluster_id).alias("cluster_id"), *RAW.names[1:])
            .writeStream.queryName(JOB)
            .option("checkpointLocation", self._checkpoint.path)
            .foreachBatch(self._batches)
        )
        if self._settings.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._settings.interval_s} seconds")
        before = self._spark.conf.get(_OFFSETS_BY_CONSUMER, "false")
        self._spark.conf.set(_OFFSETS_BY_CONSUMER, "true")
        try:
            # The query keeps the settings that it was started with.
            return writer.start()
        finally:
            self._spark.conf.set(_OFFSETS_BY_CONSUMER, before or "false")

    def stop(self, query: StreamingQuery) -> None:
        """Ends it, amid a batch if need be."""
        self._batches.stop(query)

    def raise_failure(self, query: StreamingQuery) -> None:
        """Why a query that is over failed, if it did. Raises PipelineError."""
        error = self._batches.outcome(query)
        if isinstance(error, PipelineError):
            raise error
        if error is not None:
            raise explain(f"reading {self._settings.topic}", error) from error

    def close(self) -> None:
        """Ends what the query does not own."""
        self._admin.close()

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        self._check_topic()
        self._take(frame)
        self._commit(self._paper.begin | (self._checkpoint.ends(batch_id) or {}))

    def _check_topic(self) -> None:
        """Raises if it is another topic of the same name now: offsets would not mean the same."""
        now = self._admin.topic(self._settings.topic)
        if now.topic_id != self._topic.topic_id:
            raise PipelineError(
                f"{self._settings.topic} was deleted and created anew while it was read: its id "
                f"was {self._topic.topic_id} and is {now.topic_id}. The next run is about the new "
                "one, from its beginning."
            )

    def _tell_losses(self) -> None:
        """Events that were deleted since the last run, before they were read."""
        done = self._checkpoint.last_done()
        position = self._paper.begin | (self._checkpoint.ends(done) or {})
        starts = self._admin.starts(self._topic)
        lost = sum(max(starts.get(index, 0) - offset, 0) for index, offset in position.items())
        if lost:
            tell(
                f"{JOB}: {lost:,} events of {self._settings.topic} were deleted by its retention "
                "before they were read; the table sequence_gaps says of which groups"
            )

    def _commit(self, position: Offsets) -> None:
        """Tells the group; that this fails is no reason to stop."""
        if self._settings.group is None:
            return
        try:
            self._admin.commit(self._settings.group, self._settings.topic, position)
        except PipelineError as error:
            tell(f"{JOB}: nothing was committed to the group {self._settings.group}: {error}")
