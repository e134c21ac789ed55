"""Looks up offsets of partitions by time, at their leaders."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from kohort.admin.cluster import Cluster, RefusedError
from kohort.client.net.blocking import BlockingConnection
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

T = TypeVar("T")
TopicPartition: TypeAlias = tuple[str, int]

END: Final = -1
"""The timestamp by which ListOffsets requests the log end offset."""
START: Final = -2
"""The timestamp by which ListOffsets requests the log start offset."""

_LIST_OFFSETS_MAX: Final = 9
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1


@dataclass(frozen=True, slots=True)
class FoundOffset:
    offset: int
    """The offset; -1 if all records are older than the requested time, or after an error."""
    error: int
    """An ErrorCode; LEADER_NOT_AVAILABLE if the partition has no leader."""


def find_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], *, committed_only: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """Return each partition's first offset at or after a time in ms, or for `START` or `END`.

    Partitions that do not exist are left out.

    Args:
        committed_only: `END` means the last stable offset, as with read_committed.
    """
    level = _READ_COMMITTED if committed_only else _READ_UNCOMMITTED
    found: dict[TopicPartition, FoundOffset] = {}
    for leader, partitions in leaders_of(cluster, times).items():
        if leader is None:
            found |= dict.fromkeys(partitions, FoundOffset(-1, ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            of_leader = {partition: times[partition] for partition in partitions}
            found |= _ask(cluster, leader, of_leader, level)
    return found


def known_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Like `find_offsets`, but leave out partitions with an error."""
    found = find_offsets(cluster, times)
    return {partition: result.offset for partition, result in found.items() if not result.error}


def starts_of_lagging(
    cluster: Cluster, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the log start offsets of partitions whose committed offset is below the end.

    Records between the committed offset and the log start are deleted, so they are no lag.
    """
    lagging = [
        partition for partition, offset in committed.items() if offset < ends.get(partition, 0)
    ]
    return known_offsets(cluster, dict.fromkeys(lagging, START))


def checked_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], *, committed_only: bool = False
) -> dict[TopicPartition, int]:
    """Like `find_offsets`, but raise RefusedError if a partition has an error."""
    found = find_offsets(cluster, times, committed_only=committed_only)
    for (topic, index), result in found.items():
        if result.error:
            raise RefusedError(result.error, f"the offsets of {topic}-{index} cannot be read")
    return {partition: result.offset for partition, result in found.items()}


def by_topic(partitions: Iterable[tuple[str, T]]) -> Iterable[tuple[str, list[T]]]:
    """Group values of partitions by topic, as requests do."""
    topics: dict[str, list[T]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics.items()


def leaders_of(
    cluster: Cluster, partitions: Mapping[TopicPartition, object]
) -> dict[BlockingConnection | None, list[TopicPartition]]:
    """Group the existing partitions by their leader's connection; None: they have no leader."""
    topics = sorted({topic for topic, _ in partitions})
    if not topics:
        return {}
    metadata = cluster.metadata(topics)
    by_id: dict[int, list[TopicPartition]] = {}
    for topic in metadata.topics:
        for described in topic.partitions:
            partition = (topic.name or "", described.partition_index)
            if partition in partitions:
                by_id.setdefault(described.leader_id, []).append(partition)
    by_leader: dict[BlockingConnection | None, list[TopicPartition]] = {}
    for node_id, led in by_id.items():
        by_leader.setdefault(cluster.broker(metadata, node_id), []).extend(led)
    return {leader: sorted(led) for leader, led in by_leader.items()}


def _ask(
    cluster: Cluster, leader: BlockingConnection, times: Mapping[TopicPartition, int], level: int
) -> dict[TopicPartition, FoundOffset]:
    wanted = by_topic(
        (topic, ListOffsetsPartition(partition_index=index, timestamp=time_ms))
        for (topic, index), time_ms in times.items()
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=level,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in wanted],
    )
    answer: ListOffsetsResponse = cluster.ask(leader, request, at_most=_LIST_OFFSETS_MAX)
    return {
        (topic.name, result.partition_index): FoundOffset(result.offset, result.error_code)
        for topic in answer.topics
        for result in topic.partitions
    }
