"""Offsets by time, and the ends of logs (ListOffsets)."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Final, NamedTuple

from client.core.backoff import Backoff
from client.core.errors import (
    BrokerUnreachableError,
    ConsumerError,
    OperationTimedOutError,
    UnknownTopicError,
    error_for,
)
from client.core.offsets import OffsetAndTimestamp, OffsetSpec
from client.core.partitions import TopicPartition
from client.fetched import IsolationLevel
from client.net.cluster import Cluster
from client.net.connection import DisconnectedError
from client.net.versions import UnsupportedVersionError
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Found = OffsetAndTimestamp | None

_CONSUMER: Final = -1
_RETRY_BACKOFF_MS: Final = 100
_RETRY_BACKOFF_MAX_MS: Final = 1_000

_STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""To be asked again, of whoever newer metadata names."""


class Lookup(NamedTuple):
    """What one round of questions came to."""

    found: dict[TopicPartition, Found]
    """None: no record is that late."""
    failed: dict[TopicPartition, ErrorCode]
    """To be asked again."""


async def list_offsets(
    cluster: Cluster,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    timeout_ms: int = 30_000,
) -> Mapping[TopicPartition, Found]:
    """For each partition the first offset that is not older than a time, or an end of its log.

    With READ_COMMITTED the end is the last stable offset. None: no record is that late.

    Raises:
        UnknownTopicError, OperationTimedOutError: not all were found within `timeout_ms`.
        AuthorizationError: a topic may not be looked at.
        UnexpectedResponseError: a broker answers with another error.
    """
    found: dict[TopicPartition, Found] = {}
    failed: dict[TopicPartition, ErrorCode] = {}
    left = dict(specs)
    backoff = Backoff(_RETRY_BACKOFF_MS, _RETRY_BACKOFF_MAX_MS, random.random)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            if any(cluster.leader(partition) is None for partition in left):
                await _refresh(cluster, left)
            while left:
                answered, failed = await look_up(cluster, left, isolation, timeout_ms)
                found |= answered
                left = {partition: left[partition] for partition in failed}
                if left:
                    await asyncio.sleep(backoff.fail() / 1000)
                    await _refresh(cluster, left)
    except TimeoutError:
        raise _too_late(left, failed, timeout_ms) from None
    return found


async def _refresh(cluster: Cluster, partitions: Collection[TopicPartition]) -> None:
    # Who cannot be reached now may be so in the next round; the timeout ends it.
    with suppress(BrokerUnreachableError, DisconnectedError):
        await cluster.refresh({partition.topic for partition in partitions})


def _too_late(
    left: Collection[TopicPartition], failed: Mapping[TopicPartition, ErrorCode], timeout_ms: int
) -> ConsumerError:
    names = ", ".join(f"{one.topic}-{one.partition}" for one in sorted(left)[:10])
    codes = set(failed.values())
    if codes and codes <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}:
        return UnknownTopicError(
            f"there are no such partitions: {names}; create the topic, or look at its name",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    why = ", ".join(sorted(code.name for code in codes)) or "no answer"
    return OperationTimedOutError(
        f"no offsets for {names} within {timeout_ms} ms ({why}); are their leaders up?",
        ErrorCode.REQUEST_TIMED_OUT,
    )


async def look_up(
    cluster: Cluster,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    timeout_ms: int,
) -> Lookup:
    """Ask every leader once, all at the same time.

    Raises:
        ConsumerError: a broker answers with an error that asking again does not mend.
    """
    result = Lookup({}, {})
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in specs:
        leader = cluster.leader(partition)
        if leader is None:
            info = cluster.topics.get(partition.topic)
            is_known = info is None or partition.partition < info.partition_count
            code = ErrorCode.LEADER_NOT_AVAILABLE
            result.failed[partition] = code if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            by_leader[leader.node_id].append(partition)
    rounds = [
        asyncio.ensure_future(
            _ask(cluster, node_id, {one: specs[one] for one in ours}, isolation, timeout_ms)
        )
        for node_id, ours in by_leader.items()
    ]
    try:
        for one in rounds:
            answer = await one
            result.found.update(answer.found)
            result.failed.update(answer.failed)
    finally:
        for one in rounds:
            one.cancel()
        await asyncio.gather(*rounds, return_exceptions=True)
    return result


async def _ask(
    cluster: Cluster,
    node_id: int,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    timeout_ms: int,
) -> Lookup:
    address = cluster.broker(node_id)
    if address is None:
        return Lookup({}, dict.fromkeys(specs, ErrorCode.BROKER_NOT_AVAILABLE))
    try:
        connection = await cluster.connection(address)
        version = connection.versions.best(ListOffsetsRequest)
        request = _request(cluster, specs, isolation, version, timeout_ms)
        answer = await connection.call(request, version=version, timeout_ms=timeout_ms)
    except DisconnectedError:
        return Lookup({}, dict.fromkeys(specs, ErrorCode.NETWORK_EXCEPTION))
    return _read(answer, specs)


def _request(
    cluster: Cluster,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    version: int,
    timeout_ms: int,
) -> ListOffsetsRequest:
    if version < 2 and isolation is IsolationLevel.READ_COMMITTED:
        raise UnsupportedVersionError(
            "the broker is too old for isolation_level read_committed (Kafka 0.11)",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(
                    partition_index=one.partition,
                    current_leader_epoch=leader.epoch if (leader := cluster.leader(one)) else -1,
                    timestamp=specs[one],
                )
                for one in group
            ],
        )
        for topic, group in groupby(sorted(specs), lambda one: one.topic)
    ]
    return ListOffsetsRequest(
        replica_id=_CONSUMER, isolation_level=isolation, topics=topics, timeout_ms=timeout_ms
    )


def _read(answer: ListOffsetsResponse, specs: Mapping[TopicPartition, OffsetSpec]) -> Lookup:
    result = Lookup({}, {})
    for topic in answer.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            if partition not in specs:
                continue
            code = ErrorCode(one.error_code)
            if code is ErrorCode.NONE and one.offset >= 0:
                result.found[partition] = OffsetAndTimestamp(
                    one.offset, one.timestamp, one.leader_epoch
                )
            elif code in {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}:
                # Logs from before Kafka 0.10 have no times to look for.
                result.found[partition] = None
            elif code in _STALE:
                result.failed[partition] = code
            else:
                raise error_for(code, f"looking up offsets of {topic.name}")
    for partition in specs.keys() - result.found.keys() - result.failed.keys():
        result.failed[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
    return result
