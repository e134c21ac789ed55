"""Reads the history topic with a streaming query, which may repeat batches."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from kohort.formats.text import counted
from kohort.insight.errors import ReportedError
from kohort.pipeline.faults import explain
from kohort.pipeline.kafka import Kafka, Offsets
from kohort.pipeline.streaming.query import Option, StreamSettings, TopicQuery

JOB: Final = "rebalances"
TOPIC: Final = "__rebalance_history"
OFFSETS_DEFAULT: Final = 100_000
"""Default maximum of offsets per trigger; executors hold only some of the records at a time."""

RECORDS_PER_TASK: Final = 5_000
"""Maximum number of records that one task reads. A long history is read by more tasks than the
topic has partitions."""

_OFFSETS_BY_CONSUMER: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
"""The option that makes the connector fetch offsets through a consumer with assigned partitions,
which joins no group. By default it uses an admin client, which ignores internal topics such as the
history's, so that the query would read nothing, without an error."""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    topic: str
    stream: StreamSettings
    offsets_max: int


class HistoryStream:
    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        settings: HistorySettings,
        *,
        table_id: str,
        handle_batch: Callable[[DataFrame, str, int], None],
    ) -> None:
        """Open the topic and checkpoint, and check that they match.

        `handle_batch` is called with each batch, possibly repeatedly: its records in the columns
        `ingest.COLUMNS`, the cluster id, and the number of records. `table_id` is the id of the
        table that receives them.

        Raises:
            TopicMissingError, UnavailableError, ReportedError
        """
        self._spark, self._settings = spark, settings
        self._handle_batch = handle_batch
        self._query = TopicQuery(
            spark,
            kafka,
            JOB,
            settings.topic,
            settings.stream,
            lambda frame, batch_id: self._handle_batch(
                frame, self._query.cluster_id, self._count(batch_id)
            ),
        )
        self.stop, self.close = self._query.stop, self._query.close
        try:
            self._query.begin(table_id, self._starts)
            self._announce_losses()
        except BaseException:
            self.close()
            raise

    def start(self) -> StreamingQuery:
        options: dict[str, Option] = {
            "assign": json.dumps({self._settings.topic: list(self._query.topic.partitions)}),
            # Events deleted by retention do not end the job: the table sequence_gaps shows them.
            "failOnDataLoss": False,
            "maxOffsetsPerTrigger": self._settings.offsets_max,
            "maxRecordsPerPartition": RECORDS_PER_TASK,
        }
        before = self._spark.conf.get(_OFFSETS_BY_CONSUMER, "false")
        self._spark.conf.set(_OFFSETS_BY_CONSUMER, "true")
        try:
            # The query copies the session's options now, so the reset below does not affect it.
            return self._query.start(options, _as_records)
        finally:
            self._spark.conf.set(_OFFSETS_BY_CONSUMER, before or "false")

    def raise_failure(self, query: StreamingQuery) -> None:
        error = self._query.failure(query)
        if isinstance(error, ReportedError):
            raise error
        if error is not None:
            raise explain(f"reading {self._settings.topic}", error) from error

    def _count(self, batch_id: int) -> int:
        """Return the number of offsets in a batch, including deleted records."""
        now, before = self._query.position(batch_id), self._query.position(batch_id - 1)
        return sum(now.values()) - sum(before.values())

    def _starts(self) -> Offsets:
        return self._query.admin.starts(self._query.topic)

    def _announce_losses(self) -> None:
        """Report how many unread events retention has deleted since the last run."""
        starts = self._starts()
        lost = sum(
            max(starts.get(index, 0) - offset, 0)
            for index, offset in self._query.position().items()
        )
        if lost:
            self._query.announce(
                f"the topic's retention deleted {counted(lost, 'event')} before they were read; the"
                " table sequence_gaps lists the groups"
            )


def _as_records(frame: DataFrame) -> DataFrame:
    ms = f.unix_millis("timestamp").alias("ms")
    return frame.select(f.lit(0).alias("file"), "topic", "partition", "offset", ms, "key", "value")
