"""One topic read by one streaming query: what every job that does so needs.

The query's checkpoint says which offsets a batch has. A batch that is done again after a kill
reads the same offsets; the job takes it once. How far it is gets committed to a consumer group
after each batch, so that Kafka's own tools see the lag.

Checkpoints lie under ``<checkpoints>/<job>/<topic>/<topic id>``: a topic that was deleted and
created again begins a new one, and its offsets are not mistaken for those of its namesake.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kohort.insight.console import announce
from kohort.insight.errors import ReportedError
from kohort.pipeline.batches import Batches
from kohort.pipeline.checkpoint import Checkpoint, Claim, Files
from kohort.pipeline.errors import DataLossError
from kohort.pipeline.kafka import Kafka, Offsets, Topic

Option: TypeAlias = str | int | bool
"""The value of one of the connector's options."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How a topic is followed; the command line says it."""

    checkpoints: str
    group: str | None
    """Where progress is committed; None: nowhere."""
    available_now: bool
    """Whether to end when everything is read that was there at the start."""
    interval_s: float
    """Seconds from the beginning of one trigger to the next, for a query that runs without end."""


class TopicReplacedError(DataLossError):
    """The topic of that name is another one now."""


class TopicQuery:
    """See the module. It runs one query; a new attempt needs a new one."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        job: str,
        topic: str,
        settings: StreamSettings,
        take: Callable[[DataFrame, int], None],
    ) -> None:
        """Looks whether the topic is there; `begin` has to follow.

        Args:
            job: the first word of what is told, of the query's name and of the checkpoint's place.
            take: gets each batch and its number, once or again.

        Raises:
            TopicMissingError, UnavailableError, ReportedError
        """
        self.job: Final = job
        self.name: Final = topic
        self.settings: Final = settings
        self.admin: Final = kafka.admin(spark)
        self._spark, self._kafka, self._take = spark, kafka, take
        self._batches = Batches(f"a batch of {topic}", self._batch)
        self._group_refuses = False
        self._begin: Offsets = {}
        try:
            self.topic: Topic = self.admin.topic(topic)
            self.cluster_id: Final = self.admin.cluster_id()
        except BaseException:
            self.close()
            raise
        self.place: Final = f"{settings.checkpoints}/{job}/{topic}"
        """Where the checkpoints of all topics are that have had this name."""
        self.files: Final = Files(spark)
        self._checkpoint = Checkpoint(self.files, f"{self.place}/{self.topic.topic_id}")

    def begin(self, table_id: str, first: Callable[[], Offsets]) -> str:
        """Takes up the checkpoint, or begins one at `first()`; returns its app id.

        Args:
            table_id: of the Delta table that is filled from here and from nowhere else.

        Raises:
            ReportedError: it is the checkpoint of something else.
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
        """The query, running; `options` are the connector's own, `shaped` comes before `take`."""
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
        """Where the checkpoint began."""
        return dict(self._begin)

    def read_between(
        self, begins: Offsets, ends: Offsets, *, must_be_whole: bool = True
    ) -> DataFrame:
        """The records from the one up to, and without, the other, with headers; no query of it.

        That some are gone is an error if it `must_be_whole`.
        """
        offsets = {
            name: json.dumps({self.name: {str(index): at for index, at in of.items()}})
            for name, of in (("startingOffsets", begins), ("endingOffsets", ends))
        }
        reader = self._spark.read.format("kafka").options(**self._kafka.connector_options())
        # Every partition has to be named there, also one without anything to be read.
        assigned = json.dumps({self.name: sorted(begins)})
        offsets |= {"assign": assigned, "failOnDataLoss": str(must_be_whole).lower()}
        return reader.options(**offsets, includeHeaders=True).load()

    def stop(self, query: StreamingQuery) -> None:
        """Ends it, amid a batch if need be; the next run does that one again."""
        self._batches.stop(query)

    def failure(self, query: StreamingQuery) -> ReportedError | PySparkException | None:
        """Why a query that is over failed, None if it did not; see `Batches.failure`."""
        return self._batches.failure(query)

    def close(self) -> None:
        """Ends what the query does not own."""
        self.admin.close()

    def position(self, batch_id: int | None = None) -> Offsets:
        """The next offset of each partition when this batch is done; -1: before the first.

        Without a batch, the last one that is done.
        """
        if batch_id is None:
            batch_id = self._checkpoint.last_done()
        return self._begin | (self._checkpoint.ends(batch_id) or {})

    def check_topic(self) -> None:
        """Looks whether it is the same topic still: of another one, offsets mean nothing here.

        Raises:
            TopicReplacedError: it is another one of the same name now.
            TopicMissingError: there is none.
        """
        now = self.admin.topic(self.name)
        if now.topic_id != self.topic.topic_id:
            raise TopicReplacedError(
                f"{self.name} was deleted and recreated while it was read: its id was "
                f"{self.topic.topic_id} and is {now.topic_id}. The next run is about the new one."
            )
        self.topic = now

    def commit(self, position: Offsets) -> None:
        """Tells the group; that this fails is told, and is no reason to stop."""
        group = self.settings.group
        if group is None or self._group_refuses:
            return
        try:
            self.admin.commit(group, self.name, position)
        except ReportedError as error:
            self._group_refuses = "UnknownMember" in str(error) or "NotEmpty" in str(error)
            advice = "; it has members, name another with --group" if self._group_refuses else ""
            self.announce(f"nothing was committed to the group {group}: {error}{advice}")

    def announce(self, text: str) -> None:
        """Print a line for the user who watches the job."""
        announce(f"{self.job} {self.name}: {text}")

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        self.check_topic()
        self._take(frame, batch_id)
        self.commit(self.position(batch_id))
