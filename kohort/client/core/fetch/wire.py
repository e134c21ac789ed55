"""Fetch, to and from the wire: of any version, by topic id where both sides know ids."""

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
"""The first version that names topics by their ids (KIP-516)."""

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
"""Our metadata is older than the broker's, or the broker is in trouble: ask another one."""

PASSING: Final = frozenset(
    {ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT}
)
"""The broker's trouble alone: ask it again."""


class RequestedPartition(NamedTuple):
    """What a request asks for of one partition."""

    offset: int
    leader_epoch: int
    fence: int
    """The fence of its position when the request was made."""
    is_leader: bool = True
    """Whether the broker leads it; if not, it is a follower that the leader has named."""


class SentFetch(NamedTuple):
    """A request and what is needed to understand its answer."""

    node_id: int
    """The broker that it is for."""
    version: int
    requested: Mapping[TopicPartition, RequestedPartition]
    """In the order in which the partitions should be served."""
    topic_ids: Mapping[str, bytes]
    request: FetchRequest


def version_for(best: int, topic_ids: Mapping[str, bytes]) -> int:
    """Ids can be used only if all topics have one; brokers before Kafka 2.8 give none."""
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
    """Without a fetch session: everything is said every time. `rack`: where we are, for leaders to
    name followers by (KIP-392).
    """
    topics = [
        FetchTopic(
            topic=topic,
            topic_id=topic_ids[topic],
            partitions=[
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=one.leader_epoch,
                    fetch_offset=one.offset,
                    partition_max_bytes=partition_bytes,
                )
                for partition, one in group
            ],
        )
        # A topic may come several times: the order is that in which partitions have their turn.
        for topic, group in groupby(requested.items(), lambda one: one[0].topic)
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
    """What it says about partitions that were asked for; the rest of it is ignored."""
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
