"""The history's topic by the connector's streaming read, each batch into the tables once or again.

The tables take each event once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from kohort.insight.counting import counted
from kohort.insight.errors import ReportedError
from kohort.pipeline.events import Record
from kohort.pipeline.faults import explain
from kohort.pipeline.kafka import Kafka, Offsets
from kohort.pipeline.streaming.query import Option, StreamSettings, TopicQuery

JOB: Final = "rebalances"
TOPIC: Final = "__rebalance_history"
OFFSETS_DEFAULT: Final = 20_000
"""Events per trigger: with 1,000 members each one may be half a megabyte."""

AT_ONCE: Final = 250
"""Records that one task may read, and that come to the driver together. A topic takes records of up
to a megabyte, so these are a part of the driver's memory however large events are; a job for fewer
of them would cost more than it saves.
"""

_READ: Final = ("topic", "partition", "offset", "key", "value")

_OFFSETS_BY_CONSUMER: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
"""The connector's other way, through an admin client, does not see internal topics, which the
history is: it would read nothing and say nothing. A consumer with assigned partitions sees all,
and joins no group.
"""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """How the topic is read; the command line says it."""

    topic: str
    stream: StreamSettings
    offsets_max: int


class HistoryStream:
    """See the module."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        settings: HistorySettings,
        *,
        table_id: str,
        take: Callable[[Iterator[Record], int], None],
    ) -> None:
        """Looks at topic and checkpoint, and says what is wrong with them.

        `take` gets the records of each batch, once or again, and how many they are; `table_id` is
        of the table that they end up in.

        Raises:
            TopicMissingError, UnavailableError, ReportedError
        """
        self._spark, self._settings, self._take = spark, settings, take
        self._query = TopicQuery(
            spark,
            kafka,
            JOB,
            settings.topic,
            settings.stream,
            lambda frame, batch_id: self._hand_on(frame, self._count(batch_id)),
        )
        try:
            self._query.begin(table_id, self._starts)
            self._announce_losses()
        except BaseException:
            self.close()
            raise

    def start(self) -> StreamingQuery:
        """The query, running."""
        options: dict[str, Option] = {
            "assign": json.dumps({self._settings.topic: list(self._query.topic.partitions)}),
            # What retention took is missing in the sequence of its group, and told of there.
            "failOnDataLoss": False,
            "maxOffsetsPerTrigger": self._settings.offsets_max,
            "maxRecordsPerPartition": AT_ONCE,
        }
        before = self._spark.conf.get(_OFFSETS_BY_CONSUMER, "false")
        self._spark.conf.set(_OFFSETS_BY_CONSUMER, "true")
        try:
            # The query keeps the settings that it was started with.
            return self._query.start(
                options, lambda frame: frame.select(*_READ, f.unix_millis("timestamp").alias("ms"))
            )
        finally:
            self._spark.conf.set(_OFFSETS_BY_CONSUMER, before or "false")

    def stop(self, query: StreamingQuery) -> None:
        """Ends it, amid a batch if need be."""
        self._query.stop(query)

    def raise_failure(self, query: StreamingQuery) -> None:
        """Why a query that is over failed, if it did. Raises ReportedError."""
        error = self._query.failure(query)
        if isinstance(error, ReportedError):
            raise error
        if error is not None:
            raise explain(f"reading {self._settings.topic}", error) from error

    def close(self) -> None:
        """Ends what the query does not own."""
        self._query.close()

    def _hand_on(self, frame: DataFrame, count: int) -> None:
        self._take(records(frame, self._query.cluster_id, count), count)

    def _count(self, batch_id: int) -> int:
        """Offsets in a batch: records, but for those that retention has taken."""
        now, before = self._query.position(batch_id), self._query.position(batch_id - 1)
        return sum(now.values()) - sum(before.values())

    def _starts(self) -> Offsets:
        return self._query.admin.starts(self._query.topic)

    def _announce_losses(self) -> None:
        """Events that were deleted since the last run, before they were read."""
        starts = self._starts()
        lost = sum(
            max(starts.get(index, 0) - offset, 0)
            for index, offset in self._query.position().items()
        )
        if lost:
            self._query.announce(
                f"the topic's retention deleted {counted(lost, 'event')} before they were read; the"
                " table sequence_gaps says of which groups"
            )


def records(frame: DataFrame, cluster_id: str, count: int) -> Iterator[Record]:
    """The rows of a batch of about so many, of one task at a time; few, by one task alone."""
    for row in (frame.coalesce(1) if count <= AT_ONCE else frame).toLocalIterator():
        yield Record(
            cluster_id,
            row["topic"],
            row["partition"],
            row["offset"],
            row["ms"],
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
        )
