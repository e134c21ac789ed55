"""What can be asked and changed about topics over Kafka's own protocol, of Kohort and of Kafka."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.configs import Kind, Operation, Resource, Source, alter, change, described
from kohort.admin.history import TOPIC as REBALANCE_HISTORY
from kohort.admin.offsets import END, START, known_offsets
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kohort.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kohort.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kohort.protocol.messages.metadata import MetadataResponseTopic
from kohort.protocol.types import ZERO_UUID

TIMEOUT_MS: Final = 30_000
"""How long a broker may take over a change before it answers."""

_BY_STATE_SINCE: Final = 6
"""DeleteTopics before it takes names only."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition; None for what is not known."""

    index: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    start: int | None
    end: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Config:
    """A config in force on a topic."""

    name: str
    value: str | None
    """The value; None where it is secret, or there is none."""
    is_set_here: bool
    """Whether the config was set on this topic."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic."""

    name: str
    topic_id: str
    """The 16 bytes in base64url, the way Kafka writes them."""
    is_internal: bool
    partitions: list[Partition]

    @property
    def replication_factor(self) -> int:
        """How many replicas the first partition has, which Kafka's own tool tells of the topic."""
        return len(self.partitions[0].replicas) if self.partitions else 0


def list_topics(cluster: Cluster, *, internal: bool = False) -> list[Topic]:
    """List the topics by name, without offsets, sizes and configs. Raises DisconnectedError.

    Args:
        internal: include the topics that only the broker writes. This takes a second request,
            because Kohort describes its rebalance history only if a request names it.
    """
    described = list(cluster.metadata(None).topics)
    if internal:
        described += cluster.metadata([REBALANCE_HISTORY]).topics
    found = {one.name: _topic(one, {}, {}) for one in described if one.name and not one.error_code}
    return [found[name] for name in sorted(found) if internal or not found[name].is_internal]


def describe_topic(cluster: Cluster, name: str) -> Topic | None:
    """One topic with offsets and sizes, None if there is none of that name.

    Raises:
        RefusedError, DisconnectedError: it could not be asked.
    """
    described = cluster.metadata([name]).topics[0]
    if described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if described.error_code:
        raise RefusedError(described.error_code, f"the topic {name!r} cannot be described")
    indexes = [one.partition_index for one in described.partitions]
    starts = known_offsets(cluster, {(name, index): START for index in indexes})
    ends = known_offsets(cluster, {(name, index): END for index in indexes})
    offsets = {index: (starts.get((name, index)), ends.get((name, index))) for index in indexes}
    return _topic(described, offsets, _sizes(cluster, name, indexes))


def topic_configs(cluster: Cluster, name: str) -> list[Config]:
    """All configs in force on a topic, by name. Raises RefusedError, DisconnectedError."""
    configs = described(
        cluster, cluster.controller(), Resource(Kind.TOPIC, name), None, f"topic {name!r}"
    )
    found = [
        Config(one.name, None if one.is_sensitive else one.value, one.config_source == Source.TOPIC)
        for one in configs
    ]
    return sorted(found, key=lambda one: one.name)


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str],
    is_dry_run: bool = False,
) -> None:
    """Create a topic, or see whether it could be.

    Args:
        partitions, replication_factor: -1 takes the broker's default.

    Raises:
        RefusedError: TOPIC_ALREADY_EXISTS, INVALID_CONFIG...
        DisconnectedError
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
    _check(answer.topics[0].error_code, answer.topics[0].error_message, name)


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic with all its records. Raises RefusedError, DisconnectedError."""
    controller = cluster.controller()
    if controller.versions.best(DeleteTopicsRequest) >= _BY_STATE_SINCE:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=TIMEOUT_MS
        )
    else:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
    answer: DeleteTopicsResponse = cluster.ask(controller, request)
    _check(answer.responses[0].error_code, answer.responses[0].error_message, name)


def add_partitions(cluster: Cluster, name: str, count: int, *, is_dry_run: bool = False) -> None:
    """Give a topic `count` partitions in all. Raises RefusedError, DisconnectedError."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=TIMEOUT_MS,
        validate_only=is_dry_run,
    )
    answer: CreatePartitionsResponse = cluster.ask(cluster.controller(), request)
    _check(answer.results[0].error_code, answer.results[0].error_message, name)


def alter_configs(
    cluster: Cluster,
    name: str,
    changed: Mapping[str, str],
    deleted: Iterable[str],
    *,
    is_dry_run: bool = False,
) -> None:
    """Set configs of a topic and take others back to the broker's default; the rest stays.

    Raises RefusedError, DisconnectedError.
    """
    changes = [change(key, Operation.SET, value) for key, value in changed.items()]
    changes += [change(key, Operation.DELETE) for key in deleted]
    topic = Resource(Kind.TOPIC, name)
    alter(cluster, {topic: changes}, f"topic {name!r}", is_dry_run=is_dry_run)


def _check(error: int, message: str | None, name: str) -> None:
    if error:
        raise RefusedError(error, f"topic {name!r}", message)


def _topic(
    described: MetadataResponseTopic,
    offsets: Mapping[int, tuple[int | None, int | None]],
    sizes: Mapping[int, int],
) -> Topic:
    partitions = []
    for one in sorted(described.partitions, key=lambda one: one.partition_index):
        start, end = offsets.get(one.partition_index, (None, None))
        partitions.append(
            Partition(
                index=one.partition_index,
                leader=one.leader_id if one.leader_id >= 0 else None,
                replicas=list(one.replica_nodes),
                in_sync=list(one.isr_nodes),
                start=start,
                end=end,
                size_bytes=sizes.get(one.partition_index),
            )
        )
    topic_id = urlsafe_b64encode(described.topic_id).rstrip(b"=").decode()
    return Topic(described.name or "", topic_id, described.is_internal, partitions)


def _sizes(cluster: Cluster, name: str, indexes: list[int]) -> dict[int, int]:
    """Bytes of each partition on disk, of the largest replica that is told."""
    request = DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=indexes)]
    )
    sizes: dict[int, int] = {}
    for broker in cluster.brokers():
        answer: DescribeLogDirsResponse = cluster.ask(broker, request)
        for directory in answer.results:
            for topic in directory.topics:
                for one in topic.partitions if topic.name == name else ():
                    known = sizes.get(one.partition_index, 0)
                    sizes[one.partition_index] = max(known, one.partition_size)
    return sizes
