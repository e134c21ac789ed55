"""Offsets of partitions by time, asked of the brokers that lead them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kohort.client.net.blocking import BlockingConnection
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.wire.cluster import Cluster

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
    cluster: Cluster, times: Mapping[TopicPartition, int], *, is_committed: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """The first offset at or behind a time, in milliseconds or `START` or `END`, per partition.

    Partitions that do not exist are left out. Raises DisconnectedError.

    Args:
        is_committed: the end is the last stable offset, as with read_committed.
    """
    level = _READ_COMMITTED if is_committed else _READ_UNCOMMITTED
    found: dict[TopicPartition, FoundOffset] = {}
    for leader, partitions in leaders_of(cluster, times).items():
        if leader is None:
            found |= dict.fromkeys(partitions, FoundOffset(-1, ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            asked = {one: times[one] for one in partitions}
            found |= _ask(cluster, leader, asked, level)
    return found


def leaders_of(
    cluster: Cluster, partitions: Mapping[TopicPartition, object]
) -> dict[BlockingConnection | None, list[TopicPartition]]:
    """The partitions that exist, by the broker that leads them; None leads those without one."""
    topics = sorted({topic for topic, _ in partitions})
    if not topics:
        return {}
    metadata = cluster.metadata(topics)
    addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    by_leader: dict[int, list[TopicPartition]] = {}
    for topic in metadata.topics:
        for one in topic.partitions:
            if topic.name is not None and (topic.name, one.partition_index) in partitions:
                leader = one.leader_id if one.leader_id in addresses else -1
                by_leader.setdefault(leader, []).append((topic.name, one.partition_index))
    return {
        cluster.connection(*addresses[leader]) if leader in addresses else None: sorted(led)
        for leader, led in by_leader.items()
    }


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
