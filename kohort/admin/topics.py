"""Topics, the deletion of their oldest records (KIP-107), and log directories (KIP-113)."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kohort.admin.cluster import Cluster, RefusedError, check
from kohort.admin.configs import Kind, Operation, Resource, Source, alter, change, described
from kohort.admin.history import TOPIC as REBALANCE_HISTORY
from kohort.admin.offsets import END, START, TopicPartition, by_topic, known_offsets, leaders_of
from kohort.client.net.blocking import BlockingConnection
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kohort.protocol.messages.metadata import MetadataResponseTopic
from kohort.protocol.messages.topic_changes import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kohort.protocol.types import ZERO_UUID

TIMEOUT_MS: Final = 30_000
"""`timeout_ms` in requests that change topics."""

_BY_STATE_SINCE: Final = 6
"""First version of DeleteTopics with names or ids; earlier ones have names only."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition; fields are None if the value is unknown."""

    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    start: int | None
    end: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Config:
    name: str
    value: str | None
    """None if it is not set, or a secret."""
    is_set_here: bool


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: str
    """The UUID in base64url, as Kafka formats it."""
    is_internal: bool
    partitions: list[Partition]

    @property
    def replication_factor(self) -> int:
        """Number of replicas of the first partition, as in Kafka's own tool."""
        return len(self.partitions[0].replicas) if self.partitions else 0


def list_topics(cluster: Cluster, *, internal: bool = False) -> list[Topic]:
    """List the topics by name, without offsets, sizes and configs.

    Args:
        internal: include the topics that only the broker writes. This takes a second request,
            because Kohort describes its rebalance history only if a request names it.
    """
    described = list(cluster.metadata(None).topics)
    if internal:
        described += cluster.metadata([REBALANCE_HISTORY]).topics
    topics = {
        topic.name: _topic(topic, {}, {})
        for topic in described
        if topic.name and not topic.error_code
    }
    return [topics[name] for name in sorted(topics) if internal or not topics[name].is_internal]


def topic_names(cluster: Cluster) -> list[str]:
    """The names of all topics that are not internal."""
    return [topic.name for topic in list_topics(cluster)]


def describe_topic(cluster: Cluster, name: str) -> Topic | None:
    """A topic with offsets and sizes; None if it does not exist."""
    described = cluster.metadata([name]).topics[0]
    if described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    check(described.error_code, f"the topic {name!r} cannot be described")
    indexes = [partition.partition_index for partition in described.partitions]
    starts = known_offsets(cluster, {(name, index): START for index in indexes})
    ends = known_offsets(cluster, {(name, index): END for index in indexes})
    offsets = {index: (starts.get((name, index)), ends.get((name, index))) for index in indexes}
    return _topic(described, offsets, _sizes(cluster, name, indexes))


def topic_configs(cluster: Cluster, name: str) -> list[Config]:
    configs = described(
        cluster, cluster.controller(), Resource(Kind.TOPIC, name), None, f"topic {name!r}"
    )
    found = [
        Config(
            config.name,
            None if config.is_sensitive else config.value,
            config.config_source == Source.TOPIC,
        )
        for config in configs
    ]
    return sorted(found, key=lambda config: config.name)


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str],
    is_dry_run: bool = False,
) -> None:
    """Create a topic, or with `is_dry_run` check whether it could be created.

    Args:
        partitions, replication_factor: -1 means the broker's default.

    Raises:
        RefusedError: TOPIC_ALREADY_EXISTS, INVALID_CONFIG...
    """
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=is_dry_run)
    answer: CreateTopicsResponse = cluster.ask(cluster.controller(), request)
    result = answer.topics[0]
    check(result.error_code, f"topic {name!r}", result.error_message)


def delete_topic(cluster: Cluster, name: str) -> None:
    controller = cluster.controller()
    if controller.versions.best(DeleteTopicsRequest) >= _BY_STATE_SINCE:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=TIMEOUT_MS
        )
    else:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
    answer: DeleteTopicsResponse = cluster.ask(controller, request)
    result = answer.responses[0]
    check(result.error_code, f"topic {name!r}", result.error_message)


def add_partitions(cluster: Cluster, name: str, count: int, *, is_dry_run: bool = False) -> None:
    """Increase the partitions of a topic to `count`."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=TIMEOUT_MS,
        validate_only=is_dry_run,
    )
    answer: CreatePartitionsResponse = cluster.ask(cluster.controller(), request)
    result = answer.results[0]
    check(result.error_code, f"topic {name!r}", result.error_message)


def alter_configs(
    cluster: Cluster,
    name: str,
    changed: Mapping[str, str],
    deleted: Iterable[str],
    *,
    is_dry_run: bool = False,
) -> None:
    """Set or reset a topic's configs, and keep the rest."""
    changes = [change(key, Operation.SET, value) for key, value in changed.items()]
    changes += [change(key, Operation.DELETE) for key in deleted]
    topic = Resource(Kind.TOPIC, name)
    alter(cluster, {topic: changes}, f"topic {name!r}", is_dry_run=is_dry_run)


def _topic(
    described: MetadataResponseTopic,
    offsets: Mapping[int, tuple[int | None, int | None]],
    sizes: Mapping[int, int],
) -> Topic:
    partitions = []
    for listed in sorted(described.partitions, key=lambda listed: listed.partition_index):
        start, end = offsets.get(listed.partition_index, (None, None))
        partitions.append(
            Partition(
                partition=listed.partition_index,
                leader=listed.leader_id if listed.leader_id >= 0 else None,
                replicas=list(listed.replica_nodes),
                in_sync=list(listed.isr_nodes),
                start=start,
                end=end,
                size_bytes=sizes.get(listed.partition_index),
            )
        )
    topic_id = topic_id_of(described)
    return Topic(described.name or "", topic_id, described.is_internal, partitions)


def topic_id_of(described: MetadataResponseTopic) -> str:
    """Return the UUID in base64url, as Kafka formats it."""
    return urlsafe_b64encode(described.topic_id).rstrip(b"=").decode()


def _sizes(cluster: Cluster, name: str, indexes: list[int]) -> dict[int, int]:
    """Size on disk of each partition's largest known replica, in bytes."""
    request = DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=indexes)]
    )
    sizes: dict[int, int] = {}
    for broker in cluster.brokers():
        answer: DescribeLogDirsResponse = cluster.ask(broker, request)
        for directory in answer.results:
            for topic in directory.topics:
                for replica in topic.partitions if topic.name == name else ():
                    known = sizes.get(replica.partition_index, 0)
                    sizes[replica.partition_index] = max(known, replica.partition_size)
    return sizes


def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete the records below an offset of each partition; return the new log start offsets.

    Raises:
        RefusedError: the error of the first failed partition. Others may have succeeded.
    """
    starts: dict[TopicPartition, int] = {}
    for leader, partitions in leaders_of(cluster, offsets).items():
        if leader is None:
            topic, index = partitions[0]
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        topics = by_topic(
            (topic, DeleteRecordsPartition(partition_index=index, offset=offsets[topic, index]))
            for topic, index in partitions
        )
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=wanted) for name, wanted in topics],
            timeout_ms=TIMEOUT_MS,
        )
        answer: DeleteRecordsResponse = cluster.ask(leader, request)
        for result in answer.topics:
            for partition in result.partitions:
                what = f"{result.name}-{partition.partition_index} was not trimmed"
                check(partition.error_code, what)
                starts[result.name, partition.partition_index] = partition.low_watermark
    return starts


class Directory(NamedTuple):
    path: str
    error: int
    """An ErrorCode: KAFKA_STORAGE_ERROR if the directory is offline."""
    data_bytes: int
    """Total size of the logs in the directory."""
    volume_bytes: int | None
    """Size of the directory's volume; None if unknown, as before Kafka 3.3."""
    free_bytes: int | None


def directories(cluster: Cluster, broker: BlockingConnection) -> list[Directory]:
    answer: DescribeLogDirsResponse = cluster.ask(broker, DescribeLogDirsRequest(topics=None))
    check(answer.error_code, f"{broker.address} does not list its directories")
    return [
        Directory(
            directory.log_dir,
            directory.error_code,
            sum(log.partition_size for topic in directory.topics for log in topic.partitions),
            directory.total_bytes if directory.total_bytes >= 0 else None,
            directory.usable_bytes if directory.usable_bytes >= 0 else None,
        )
        for directory in answer.results
    ]
