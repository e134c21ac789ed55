"""Collects topics and partitions: offsets, sizes, and kafka_exporter's metrics of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import Metric

from kohort.broker.metrics.families import (
    PARTITIONS,
    TOPICS,
    Labels,
    SeriesBudget,
    WideFamily,
    rows,
    single,
)
from kohort.broker.metrics.group_counts import OTHER
from kohort.broker.metrics.partitions import open_partition
from kohort.broker.runtime.slices import Slice

if TYPE_CHECKING:
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.topics.partition import Partition


@dataclass(slots=True, eq=False)
class PartitionSample:
    """The sample of one partition, or the sums over partitions without their own series."""

    labels: Labels
    high_watermark: int
    log_start_offset: int
    size_bytes: int
    segment_count: int
    in_sync: int
    replicas: int = 1
    lost_offsets: int = 0
    held_offsets: int = 0

    def add(self, other: PartitionSample) -> None:
        for summed in fields(self)[1:]:
            total = getattr(self, summed.name) + getattr(other, summed.name)
            setattr(self, summed.name, total)

    @property
    def under_replicated(self) -> int:
        return self.replicas - self.in_sync


@dataclass(slots=True, eq=False)
class TopicSample:
    """The sample of one topic, or the sums over topics without their own series."""

    labels: Labels
    partition_count: int = 0
    appended_bytes: int = 0


@dataclass(slots=True, eq=False)
class _Seen:
    topics: list[TopicSample] = field(default_factory=list)
    partitions: list[PartitionSample] = field(default_factory=list)
    producer_count: int = 0
    late_partitions: int = 0
    folded_topics: int = 0
    folded_partitions: int = 0


_OF_TOPICS: Final = (
    ("kafka_topic_partitions", attrgetter("partition_count")),
    ("kohort_topic_appended_bytes_total", attrgetter("appended_bytes")),
)

_OF_PARTITIONS: Final = (
    ("kafka_topic_partition_current_offset", attrgetter("high_watermark")),
    ("kafka_topic_partition_oldest_offset", attrgetter("log_start_offset")),
    ("kafka_topic_partition_replicas", attrgetter("replicas")),
    ("kafka_topic_partition_in_sync_replica", attrgetter("in_sync")),
    ("kafka_topic_partition_under_replicated_partition", attrgetter("under_replicated")),
    ("kafka_log_log_size", attrgetter("size_bytes")),
    ("kafka_log_log_numlogsegments", attrgetter("segment_count")),
)
"""Metrics that are meaningful both for one partition and as a sum over several."""


class TopicCollector:
    """Collector of one broker's topics; `refresh` takes the samples, `collect` returns them."""

    def __init__(
        self,
        topics: TopicManager,
        *,
        node_id: int,
        partitions_max: int,
        late_before_ms: Callable[[], int],
    ) -> None:
        """A transaction whose last batch is older than `late_before_ms` is late."""
        self._topics = topics
        self._late_before_ms = late_before_ms
        self._node_id = node_id
        self._partitions_max = partitions_max
        self._seen = _Seen()

    @property
    def folded(self) -> dict[str, int]:
        """Number of topics, and of partitions, that are counted under OTHER, without own series."""
        return {TOPICS: self._seen.folded_topics, PARTITIONS: self._seen.folded_partitions}

    async def refresh(self, time_slice: Slice) -> None:
        """Sample every partition in time slices, so at slightly different times."""
        seen = _Seen()
        late_before_ms = self._late_before_ms()
        budget = SeriesBudget(self._partitions_max)
        rest = TopicSample(Labels({"topic": OTHER}))
        rest_partitions = PartitionSample(_labels(OTHER, OTHER), 0, 0, 0, 0, 0, 0)
        for topic in list(self._topics.all()):
            has_series = budget.take(len(topic.partitions))
            sample = TopicSample(Labels({"topic": topic.name})) if has_series else rest
            sample.partition_count += len(topic.partitions)
            for index in range(len(topic.partitions)):
                partition = open_partition(self._topics, topic, index)
                seen_partition = _sample(topic.name, index, partition)
                if partition is not None:
                    sample.appended_bytes += partition.visible_bytes
                    _count_producers(partition, seen, late_before_ms)
                if has_series:
                    seen.partitions.append(seen_partition)
                else:
                    rest_partitions.add(seen_partition)
                await time_slice.pause()
            if has_series:
                seen.topics.append(sample)
            else:
                seen.folded_topics += 1
        if seen.folded_topics:
            seen.topics.append(rest)
            seen.partitions.append(rest_partitions)
            seen.folded_partitions = rest.partition_count
        self._seen = seen

    def forget(self) -> None:
        """Drop the samples; `collect` returns none until the next refresh."""
        self._seen = _Seen()

    def collect(self) -> Iterator[Metric]:
        seen = self._seen
        for info, value_of in _OF_TOPICS:
            yield WideFamily(info, rows(seen.topics, value_of))
        for info, value_of in _OF_PARTITIONS:
            yield WideFamily(info, rows(seen.partitions, value_of))
        short = [sample for sample in seen.partitions if sample.lost_offsets]
        yield WideFamily("kohort_partition_lost_offsets", rows(short, attrgetter("lost_offsets")))
        held = [sample for sample in seen.partitions if sample.held_offsets]
        yield WideFamily(
            "kohort_partition_last_stable_offset_lag", rows(held, attrgetter("held_offsets"))
        )
        # A sum of broker ids is meaningless, and the last sample may be a sum.
        partitions = seen.partitions[:-1] if seen.folded_topics else seen.partitions
        yield WideFamily("kafka_topic_partition_leader", rows(partitions, lambda _: self._node_id))
        yield WideFamily("kafka_topic_partition_leader_is_preferred", rows(partitions, lambda _: 1))
        yield single("kafka_server_replicamanager_produceridcount", seen.producer_count)
        yield single(
            "kafka_server_replicamanager_partitionswithlatetransactionscount", seen.late_partitions
        )
        compaction = self._topics.compaction
        yield single(
            "kafka_log_logcleanermanager_uncleanable_partitions_count", compaction.uncleanable_count
        )
        yield single("kohort_compaction_failures_total", compaction.failure_count)


def _sample(topic: str, index: int, partition: Partition | None) -> PartitionSample:
    labels = _labels(topic, str(index))
    if partition is None:
        return PartitionSample(labels, 0, 0, 0, 0, in_sync=1)
    log = partition.log
    return PartitionSample(
        labels,
        partition.high_watermark,
        log.log_start_offset,
        log.size_bytes,
        len(log.segments),
        int(partition.failure is None),
        lost_offsets=log.lost_offsets,
        held_offsets=partition.held_offsets,
    )


def _count_producers(partition: Partition, seen: _Seen, late_before_ms: int) -> None:
    producers = partition.log.loaded_producers
    if producers is None:
        return
    seen.producer_count += len(producers)
    # As in Kafka, only the first open transaction counts, which determines the last stable offset.
    last_ms = producers.first_open_last_ms
    seen.late_partitions += last_ms is not None and last_ms < late_before_ms


def _labels(topic: str, partition: str) -> Labels:
    return Labels({"topic": topic, "partition": partition})
