"""Builds and reads Fetch messages of any version, with topic ids where both sides know them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from kohort.client.core.partitions import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.protocol.types import ZERO_UUID

FIRST_BY_ID: Final = 13
"""The first version that identifies topics by id (KIP-516)."""

STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of outdated metadata, or of a broker with a problem: refresh the metadata, which may name
another broker, and retry."""

PASSING: Final = frozenset(
    {ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT}
)
"""Temporary errors: ask the same broker again."""


class RequestedPartition(NamedTuple):
    offset: int
    leader_epoch: int
    fence: int
    """The partition's fence (see `positions`): if it has changed, the fetched data is void."""
    is_leader: bool = True
    """Whether the broker is the leader; if not, it is the preferred read replica (KIP-392)."""


class SentFetch(NamedTuple):
    """A request, and the data needed to interpret its response."""

    node_id: int
    version: int
    requested: Mapping[TopicPartition, RequestedPartition]
    """The requested partitions, in the order in which they should be served."""
    topic_ids: Mapping[str, bytes]
    request: FetchRequest


def version_for(best: int, topic_ids: Mapping[str, bytes]) -> int:
    """Return the version to send: `best`, or the last version that identifies topics by name if the
    id of a topic is unknown, as with brokers before Kafka 2.8.
    """
    by_name = ZERO_UUID in topic_ids.values()
    return min(best, FIRST_BY_ID - 1) if by_name else best


def fetch_request(
    requested: Mapping[TopicPartition, RequestedPartition],
    topic_ids: Mapping[str, bytes],
    *,
    partition_bytes: int,
    bytes_max: int,
    min_bytes: int,
    max_wait_ms: int,
    isolation_level: int,
    rack: str = "",
) -> FetchRequest:
    """Build a request without a fetch session: it lists all partitions to fetch. `rack`: the
    consumer's location, for which a leader may name a preferred read replica (KIP-392).
    """
    topics = [
        FetchTopic(
            topic=topic,
            topic_id=topic_ids[topic],
            partitions=[
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=fields.leader_epoch,
                    fetch_offset=fields.offset,
                    partition_max_bytes=partition_bytes,
                )
                for partition, fields in group
            ],
        )
        # A topic may occur several times, because partitions are requested in round-robin order.
        for topic, group in groupby(requested.items(), lambda item: item[0].topic)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=bytes_max,
        isolation_level=isolation_level,
        topics=topics,
        rack_id=rack,
    )


def answers_in(
    sent: SentFetch, answer: FetchResponse
) -> Iterator[tuple[TopicPartition, RequestedPartition, PartitionData]]:
    """Yield the response's data for requested partitions; other data is ignored."""
    names = {topic_id: topic for topic, topic_id in sent.topic_ids.items()}
    for topic in answer.responses:
        name = topic.topic if sent.version < FIRST_BY_ID else names.get(topic.topic_id)
        if name is None:
            continue
        for data in topic.partitions:
            partition = TopicPartition(name, data.partition_index)
            requested = sent.requested.get(partition)
            if requested is not None:
                yield partition, requested, data
