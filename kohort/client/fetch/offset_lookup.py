"""Looks up offsets by timestamp, and the ends of logs (ListOffsets), for the application and for
partitions without a position.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Final, NamedTuple

from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import (
    BrokerUnreachableError,
    ConsumerError,
    OperationTimedOutError,
    UnknownTopicError,
    error_for,
)
from kohort.client.core.fetch.config import FetchConfig, IsolationLevel
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.wire import STALE
from kohort.client.core.offsets import UNKNOWN_EPOCH, OffsetAndTimestamp, OffsetSpec
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.leader_rounds import LeaderRounds
from kohort.client.net.cluster import Cluster
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FoundOffset = OffsetAndTimestamp | None

_CONSUMER: Final = -1
_RETRY_BACKOFF_MS: Final = 100
_RETRY_BACKOFF_MAX_MS: Final = 1_000

_AGAIN: Final = STALE | {
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Errors after which the leader named by newer metadata is asked."""


class Lookup(NamedTuple):
    found: dict[TopicPartition, FoundOffset]
    """Offsets by partition; None if all records are older than the requested timestamp."""
    failed: dict[TopicPartition, ErrorCode]


async def list_offsets(
    cluster: Cluster,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    timeout_ms: int = 30_000,
    *,
    request_timeout_ms: int = 30_000,
) -> Mapping[TopicPartition, FoundOffset]:
    """Return each partition's first offset at or after a timestamp, or its start or end offset.

    With READ_COMMITTED the end is the last stable offset. None: all records are older. A leader
    that does not answer delays only its own partitions.

    Args:
        timeout_ms: time limit of the whole lookup.
        request_timeout_ms: time limit of one response, after which the leader is looked up again.

    Raises:
        UnknownTopicError, OperationTimedOutError: not all were found within `timeout_ms`.
        AuthorizationError: access to a topic is denied.
        UnexpectedResponseError: a broker answers with another error.
    """
    result = Lookup({}, {})
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            if any(cluster.leader(partition) is None for partition in specs):
                await _refresh(cluster, specs)
            await _look_up(cluster, specs, isolation, request_timeout_ms, result)
    except TimeoutError:
        left = specs.keys() - result.found.keys()
        failed = {tp: code for tp, code in result.failed.items() if tp in left}
        raise _too_late(left, failed, timeout_ms) from None
    return result.found


async def _look_up(
    cluster: Cluster,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    request_timeout_ms: int,
    result: Lookup,
) -> None:
    """Repeat requests until all offsets are in `result.found`; update `result.failed` each time."""
    backoff = Backoff(_RETRY_BACKOFF_MS, _RETRY_BACKOFF_MAX_MS, random.random)
    left = dict(specs)
    while True:
        by_leader, unled = _by_leader(cluster, left)
        result.failed.update(unled)
        if len(by_leader) + bool(unled) > 1:
            parts = [*by_leader.values(), {tp: left[tp] for tp in unled}]
            await _all_of(
                _look_up(cluster, part, isolation, request_timeout_ms, result)
                for part in parts
                if part
            )
            return
        for node_id, ours in by_leader.items():
            answer = await ask_leader(cluster, node_id, ours, isolation, request_timeout_ms)
            result.found.update(answer.found)
            result.failed.update(answer.failed)
            left = {partition: left[partition] for partition in answer.failed}
        if not left:
            return
        await asyncio.sleep(backoff.fail() / 1000)
        await _refresh(cluster, left)


async def _all_of(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Run coroutines concurrently; the first failure cancels the others and is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _by_leader(
    cluster: Cluster, specs: Mapping[TopicPartition, OffsetSpec]
) -> tuple[dict[int, dict[TopicPartition, OffsetSpec]], dict[TopicPartition, ErrorCode]]:
    """Return the partitions by leader id, and an error for each partition without a leader."""
    by_leader: dict[int, dict[TopicPartition, OffsetSpec]] = defaultdict(dict)
    unled: dict[TopicPartition, ErrorCode] = {}
    for partition, spec in specs.items():
        leader = cluster.leader(partition)
        if leader is not None:
            by_leader[leader.node_id][partition] = spec
            continue
        info = cluster.topics.get(partition.topic)
        may_come = info is None or partition.partition < info.partition_count
        code = ErrorCode.LEADER_NOT_AVAILABLE
        unled[partition] = code if may_come else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return by_leader, unled


async def _refresh(cluster: Cluster, partitions: Collection[TopicPartition]) -> None:
    # Brokers that are unreachable may return for the next round; the timeout limits the attempts.
    with suppress(BrokerUnreachableError, DisconnectedError):
        await cluster.refresh({partition.topic for partition in partitions})


def _too_late(
    left: Collection[TopicPartition], failed: Mapping[TopicPartition, ErrorCode], timeout_ms: int
) -> ConsumerError:
    names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(left)[:10])
    codes = set(failed.values())
    if codes and codes <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}:
        return UnknownTopicError(
            f"no such partitions: {names}; create the topic, or check its name",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    why = ", ".join(sorted(code.name for code in codes)) or "no answer"
    return OperationTimedOutError(
        f"no offsets for {names} within {timeout_ms} ms ({why}); are their leaders up?",
        ErrorCode.REQUEST_TIMED_OUT,
    )


async def ask_leader(
    cluster: Cluster,
    node_id: int,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    timeout_ms: int,
) -> Lookup:
    """Send one ListOffsets request to a broker.

    Raises:
        ConsumerError: the broker answers with an error that a retry cannot resolve.
    """
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
                    partition_index=tp.partition,
                    current_leader_epoch=leader.epoch if (leader := cluster.leader(tp)) else -1,
                    timestamp=specs[tp],
                )
                for tp in group
            ],
        )
        for topic, group in groupby(sorted(specs), lambda tp: tp.topic)
    ]
    return ListOffsetsRequest(
        replica_id=_CONSUMER, isolation_level=isolation, topics=topics, timeout_ms=timeout_ms
    )


def _read(answer: ListOffsetsResponse, specs: Mapping[TopicPartition, OffsetSpec]) -> Lookup:
    result = Lookup({}, {})
    for topic in answer.topics:
        for answered in topic.partitions:
            partition = TopicPartition(topic.name, answered.partition_index)
            if partition not in specs:
                continue
            code = ErrorCode(answered.error_code)
            if code is ErrorCode.NONE and answered.offset >= 0:
                result.found[partition] = OffsetAndTimestamp(
                    answered.offset, answered.timestamp, answered.leader_epoch
                )
            elif code in {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}:
                # Logs written before Kafka 0.10 have no timestamps to search.
                result.found[partition] = None
            elif code in _AGAIN:
                result.failed[partition] = code
            else:
                raise error_for(code, f"looking up offsets of {topic.name}")
    for partition in specs.keys() - result.found.keys() - result.failed.keys():
        result.failed[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
    return result


class OffsetResets:
    """Looks up the partitions in `Positions.awaiting_reset`, each leader independently, in the
    background, so that partitions that have a position are read meanwhile.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        config: FetchConfig,
        *,
        on_metadata_wanted: Callable[[], None],
        on_found: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_found` is called after each response or failure, `on_failed` with an error."""
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._on_failed = on_failed
        self._rounds: LeaderRounds[OffsetSpec] = LeaderRounds(
            "look up offsets",
            self._look_up,
            leader_of=self._leader_of,
            backoff_ms=(config.retry_backoff_ms, config.retry_backoff_max_ms),
            on_due=self.begin,
            on_answered=on_found,
            on_metadata_wanted=on_metadata_wanted,
            on_failed=on_failed,
        )

    def begin(self) -> None:
        """Start all lookups that are needed. To be called after new metadata, too."""
        self._rounds.begin(self._positions.awaiting_reset())

    async def close(self) -> None:
        await self._rounds.close()

    def _leader_of(self, partition: TopicPartition) -> int | None:
        leader = self._cluster.leader(partition)
        return None if leader is None else leader.node_id

    async def _look_up(
        self, node_id: int, specs: Mapping[TopicPartition, OffsetSpec]
    ) -> Collection[TopicPartition]:
        """Query this leader once. Returns the partitions to query again."""
        config = self._config
        try:
            offsets, failed = await ask_leader(
                self._cluster, node_id, specs, config.isolation, config.request_timeout_ms
            )
        except ConsumerError as error:
            # Report the error to the user and retry, as after a rejected fetch.
            self._on_failed(error)
            return specs
        for partition, offset in offsets.items():
            if offset is None:
                self._positions.reset_found(partition, specs[partition], None, UNKNOWN_EPOCH)
            else:
                at, _, epoch = offset
                self._positions.reset_found(partition, specs[partition], at, epoch)
        return failed
