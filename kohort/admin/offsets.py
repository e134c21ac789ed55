"""Offsets of partitions by time, asked of the brokers that lead them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kohort.admin.cluster import Cluster, RefusedError
from kohort.client.net.blocking import BlockingConnection
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

TopicPartition: TypeAlias = tuple[str, int]

END: Final = -1
"""The timestamp that asks for the offset behind the last record."""
START: Final = -2
"""The timestamp that asks for the first offset."""

_LIST_OFFSETS_MAX: Final = 9
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """What a broker has answered for one partition."""

    offset: int
    """-1: no record is that late."""
    error: int
    """An ErrorCode; LEADER_NOT_AVAILABLE where there was no broker to ask."""


def find_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], *, committed_only: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """The first offset at or behind a time, in milliseconds or `START` or `END`, per partition.

    Partitions that do not exist are left out. Raises DisconnectedError.

    Args:
        committed_only: the end is the last stable offset, as with read_committed.
    """
    level = _READ_COMMITTED if committed_only else _READ_UNCOMMITTED
    found: dict[TopicPartition, FoundOffset] = {}
    for leader, partitions in leaders_of(cluster, times).items():
        if leader is None:
            found |= dict.fromkeys(partitions, FoundOffset(-1, ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            asked = {one: times[one] for one in partitions}
            found |= _ask(cluster, leader, asked, level)
    return found


def known_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """`find_offsets` without the partitions that do not tell."""
    found = find_offsets(cluster, times)
    return {one: answer.offset for one, answer in found.items() if not answer.error}


def starts_of_lagging(
    cluster: Cluster, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the log start offsets of the partitions whose committed offset is below the end: only
    these can have deleted records that would count as lag. Raises DisconnectedError.
    """
    lagging = [one for one, offset in committed.items() if offset < ends.get(one, 0)]
    return known_offsets(cluster, dict.fromkeys(lagging, START))


def told_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], *, committed_only: bool = False
) -> dict[TopicPartition, int]:
    """`find_offsets` where each partition that exists has to tell.

    Raises:
        RefusedError: one does not.
        DisconnectedError
    """
    found = find_offsets(cluster, times, committed_only=committed_only)
    for (topic, index), answer in found.items():
        if answer.error:
            raise RefusedError(answer.error, f"{topic}-{index} does not tell its offsets")
    return {one: answer.offset for one, answer in found.items()}


def leaders_of(
    cluster: Cluster, partitions: Mapping[TopicPartition, object]
) -> dict[BlockingConnection | None, list[TopicPartition]]:
    """The partitions that exist, by the broker that leads them; None leads those without one."""
    topics = sorted({topic for topic, _ in partitions})
    if not topics:
        return {}
    metadata = cluster.metadata(topics)
    by_id: dict[int, list[TopicPartition]] = {}
    for topic in metadata.topics:
        for one in topic.partitions:
            if topic.name is not None and (topic.name, one.partition_index) in partitions:
                by_id.setdefault(one.leader_id, []).append((topic.name, one.partition_index))
    found: dict[BlockingConnection | None, list[TopicPartition]] = {}
    for node_id, led in by_id.items():
        found.setdefault(cluster.broker(metadata, node_id), []).extend(led)
    return {leader: sorted(led) for leader, led in found.items()}


def _ask(
    cluster: Cluster, leader: BlockingConnection, times: Mapping[TopicPartition, int], level: int
) -> dict[TopicPartition, FoundOffset]:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, index), time_ms in times.items():
        asked = ListOffsetsPartition(partition_index=index, timestamp=time_ms)
        by_topic.setdefault(topic, []).append(asked)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=level,
        topics=[
            ListOffsetsTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )
    answer: ListOffsetsResponse = cluster.ask(leader, request, at_most=_LIST_OFFSETS_MAX)
    return {
        (topic.name, one.partition_index): FoundOffset(one.offset, one.error_code)
        for topic in answer.topics
        for one in topic.partitions
    }
