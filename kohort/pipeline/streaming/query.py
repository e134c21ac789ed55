"""Reads one topic with one streaming query; shared by all streaming jobs.

The query's checkpoint stores the offsets of each batch. A batch repeated after a kill reads the
same offsets, and the job ignores the repetition. After each batch, the position is committed to a
consumer group, so that Kafka's own tools show the lag.

Checkpoints are under ``<checkpoints>/<job>/<topic>/<topic id>``: a recreated topic gets a new one,
so its offsets are not confused with those of the deleted topic.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kohort.insight.errors import ReportedError
from kohort.insight.output import announce
from kohort.pipeline.checkpoint import Checkpoint, Claim, Files
from kohort.pipeline.errors import DataLossError
from kohort.pipeline.faults import explain
from kohort.pipeline.kafka import Kafka, Offsets, Topic

Option: TypeAlias = str | int | bool


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings for following a topic, from the command line."""

    checkpoints: str
    group: str | None
    """Group to which progress is committed; None to commit nothing."""
    available_now: bool
    """Whether to end after reading the records present at the start."""
    interval_s: float
    """Seconds between the starts of triggers of a continuous query."""


class TopicReplacedError(DataLossError):
    """The topic was deleted and recreated."""


class TopicQuery:
    """Reads a topic with one streaming query. To retry after a failure, create a new TopicQuery."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        job: str,
        topic: str,
        settings: StreamSettings,
        handle_batch: Callable[[DataFrame, int], None],
    ) -> None:
        """Check that the topic exists. Call `begin` before `start`.

        Args:
            job: first word of messages, of the query's name and of the checkpoint's path.
            handle_batch: called with each batch and its number, possibly repeatedly.

        Raises:
            TopicMissingError, UnavailableError, ReportedError
        """
        self.job: Final = job
        self.name: Final = topic
        self.settings: Final = settings
        self.admin: Final = kafka.admin()
        self._spark, self._kafka, self._handle_batch = spark, kafka, handle_batch
        self._batches = Batches(f"a batch of {topic}", self._batch)
        self.stop, self.failure = self._batches.stop, self._batches.failure
        self.close: Final = self.admin.close
        """Closes the admin client; the query is not stopped."""
        self._group_refuses = False
        self._begin: Offsets = {}
        try:
            self.topic: Topic = self.admin.topic(topic)
            self.cluster_id: Final = self.admin.cluster_id()
        except BaseException:
            self.close()
            raise
        self.place: Final = f"{settings.checkpoints}/{job}/{topic}"
        """Directory of the checkpoints of all topics that have had this name."""
        self.files: Final = Files(spark)
        self._checkpoint = Checkpoint(self.files, f"{self.place}/{self.topic.topic_id}")

    def begin(self, table_id: str, first: Callable[[], Offsets]) -> str:
        """Open the checkpoint, or create one that begins at the offsets `first()`; return the
        application id of its batches.

        Args:
            table_id: id of the table to which only this checkpoint writes.

        Raises:
            ReportedError: another query owns the checkpoint.
        """
        claim = Claim(self.job, self.cluster_id, self.name, self.topic.topic_id, table_id)
        owner = self._checkpoint.owner(claim)
        if owner is None:
            owner = self._checkpoint.begin(claim, first())
        self._begin = owner.begin
        return owner.app_id

    def start(
        self,
        options: Mapping[str, Option],
        shaped: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    ) -> StreamingQuery:
        """Start the query with the connector's `options`; `shaped` transforms the rows read."""
        begin = {str(index): self._begin.get(index, 0) for index in self.topic.partitions}
        reader = (
            self._spark.readStream.format("kafka")
            .options(**self._kafka.connector_options())
            .options(**options)
            .option("startingOffsets", json.dumps({self.name: begin}))
        )
        writer = (
            shaped(reader.load())
            .writeStream.queryName(f"{self.job} {self.name}")
            .option("checkpointLocation", self._checkpoint.path)
            .foreachBatch(self._batches)
        )
        if self.settings.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.settings.interval_s} seconds").start()

    @property
    def begun(self) -> Offsets:
        return dict(self._begin)

    def read_between(
        self, begins: Offsets, ends: Offsets, *, must_be_whole: bool = True
    ) -> DataFrame:
        """Read the records between the offsets; with `must_be_whole`, missing ones are an error."""
        offsets = {
            name: json.dumps({self.name: {str(index): at for index, at in range_offsets.items()}})
            for name, range_offsets in (("startingOffsets", begins), ("endingOffsets", ends))
        }
        reader = self._spark.read.format("kafka").options(**self._kafka.connector_options())
        # All partitions must be listed, even those without records to read.
        assigned = json.dumps({self.name: sorted(begins)})
        offsets |= {"assign": assigned, "failOnDataLoss": str(must_be_whole).lower()}
        return reader.options(**offsets, includeHeaders=True).load()

    def position(self, batch_id: int | None = None) -> Offsets:
        """Return the next offset of each partition after batch `batch_id`; -1 stands for the
        position before the first batch.

        With None, return the offsets after the last completed batch.
        """
        if batch_id is None:
            batch_id = self._checkpoint.last_done()
        return self._begin | (self._checkpoint.ends(batch_id) or {})

    def check_topic(self) -> None:
        """Check that the topic was not recreated, which would make the offsets meaningless.

        Raises:
            TopicReplacedError: it was recreated.
            TopicMissingError: it was deleted.
        """
        now = self.admin.topic(self.name)
        if now.topic_id != self.topic.topic_id:
            raise TopicReplacedError(
                f"{self.name} was deleted and recreated while it was read: its id was "
                f"{self.topic.topic_id} and is {now.topic_id}. The next run reads the new topic."
            )
        self.topic = now

    def commit(self, position: Offsets) -> None:
        """Commit `position` to the group; failures are reported, but do not stop the job."""
        group = self.settings.group
        if group is None or self._group_refuses:
            return
        try:
            self.admin.commit(group, self.name, position)
        except ReportedError as error:
            self._group_refuses = "UNKNOWN_MEMBER_ID" in str(error)
            advice = (
                "; the group has members, choose another one with --group"
                if self._group_refuses
                else ""
            )
            self.announce(f"the commit to the group {group} failed: {error}{advice}")

    def announce(self, text: str) -> None:
        announce(f"{self.job} {self.name}: {text}")

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        self.check_topic()
        self._handle_batch(frame, batch_id)
        self.commit(self.position(batch_id))


_FAILED: Final = "the batch failed; the job that runs this query reports the reason"

_INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling stop: "
    "java.lang.InterruptedException"
)
"""The text of a batch's error after `stop`: the shortest that Spark recognizes as an interruption.
With any other text, Spark would log a stack trace."""


class Batches:
    """A query's `foreachBatch` function; stores the error of a failed batch for `failure`."""

    def __init__(self, what: str, handle_batch: Callable[[DataFrame, int], None]) -> None:
        """`handle_batch` is called with each batch and its number; `what` names it in errors."""
        self._what = what
        self._handle_batch = handle_batch
        self._is_stopped = False
        self._failure: ReportedError | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Handle a batch. If that fails, raise a new exception of one line outside the `except`
        clause, because py4j would send the whole context of the original exception to the JVM.
        """
        try:
            self._handle_batch(frame, batch_id)
        except Exception as error:  # noqa: BLE001 - reported by `failure`.
            text = self._store_failure(error)
        else:
            return
        raise RuntimeError(text)

    def stop(self, query: StreamingQuery) -> None:
        """Stop the query, during a batch if necessary; the next run repeats that batch."""
        if query.isActive:
            self._is_stopped = True
        query.stop()

    def failure(self, query: StreamingQuery) -> ReportedError | PySparkException | None:
        """Return why an ended query failed: the exception of a batch, otherwise Spark's.

        Return None if the query ended normally or was stopped.
        """
        try:
            query.awaitTermination()
        except PySparkException as error:
            if self._failure is not None:
                return self._failure
            return None if self._is_stopped else error
        return None

    def _store_failure(self, error: Exception) -> str:
        if self._is_stopped:
            return _INTERRUPTED
        if not isinstance(error, ReportedError):
            cause, error = error, explain(self._what, error)
            error.__cause__ = cause
        self._failure = error
        return _FAILED
