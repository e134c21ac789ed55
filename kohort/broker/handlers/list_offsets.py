"""ListOffsets (key 2): look up offsets by timestamp, or the ends of a log.

v1-11 as in Kafka 4.4. With isolation level 1 (v2, KIP-98) the end is the last stable offset, and
nothing after it is found. There is no tiered storage: the earliest local offset is the log start
offset, the last tiered and the earliest pending upload offsets are -1, and the timeout of v10, for
lookups in remote storage, is ignored.

OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, for detecting truncation.

v2-4. The current epoch ends at the high watermark. Only a log taken over from a Kafka cluster has
earlier epochs as well. An epoch after the current one has no end offset.
"""

from typing import Final, NamedTuple

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, per_partition, same
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import current_partition
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.partition import Partition
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

_PARTITIONS_PER_STEP: Final = 200
"""Number of partitions looked up before other requests may run. A long request is not split
for this, because a partition that is named twice, an error, would not be detected in two parts."""

LEADER_EPOCH_SINCE: Final = 4

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6

_SPECIAL_SINCE: Final = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
"""Special values in place of a timestamp, and the request version that introduced them."""


class _FoundOffset(NamedTuple):
    """An offset and the timestamp of its record; each is -1 if not found or not looked up."""

    offset: int = -1
    timestamp: int = -1


_NOT_FOUND: Final = _FoundOffset()


class _Search(NamedTuple):
    partition: Partition
    timestamp: int
    committed_only: bool
    answer: ListOffsetsPartitionResponse


@handles(
    ListOffsetsRequest,
    versions="1-11",
    on_error=OnError(
        per_partition(
            same("name"), same("partition_index"), timestamp=-1, offset=-1, leader_epoch=-1
        )
    ),
)
def list_offsets(
    ctx: RequestContext, request: ListOffsetsRequest
) -> Steps[ListOffsetsResponse | Deferred[ListOffsetsResponse]]:
    """Look up an offset for each partition. Partitions fail individually; a partition that is named
    twice fails.
    """
    by_topic: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    for topic in request.topics:
        partitions = by_topic.setdefault(topic.name, {})
        for partition in topic.partitions:
            partitions.setdefault(partition.partition_index, []).append(partition)
        yield
    searches: list[_Search] = []
    response = ListOffsetsResponse(topics=[])
    for name, partitions in by_topic.items():
        is_denied = not ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        answers: list[ListOffsetsPartitionResponse] = []
        for index, requested in partitions.items():
            if is_denied:
                answers.append(_failed(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif len(requested) > 1:
                answers.append(_failed(index, ErrorCode.INVALID_REQUEST))
            else:
                answers.append(_answer(ctx, request.isolation_level, name, requested[0], searches))
            if not len(answers) % _PARTITIONS_PER_STEP:
                yield
        response.topics.append(ListOffsetsTopicResponse(name=name, partitions=answers))
        yield
    if not searches:
        return response
    return ctx.run(_look_up_timestamps(ctx, response, searches), name="list_offsets")


def _answer(
    ctx: RequestContext,
    isolation_level: int,
    topic: str,
    requested: ListOffsetsPartition,
    searches: list[_Search],
) -> ListOffsetsPartitionResponse:
    """Return a partition's response; if it needs a lookup, add that to `searches`."""
    answer = ListOffsetsPartitionResponse(
        partition_index=requested.partition_index, error_code=ErrorCode.NONE
    )
    timestamp = requested.timestamp
    try:
        partition = current_partition(
            ctx, topic, requested.partition_index, requested.current_leader_epoch
        )
        if isolation_level not in {READ_UNCOMMITTED, READ_COMMITTED}:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        committed_only = isolation_level == READ_COMMITTED
        partition.check_online()
        since = _SPECIAL_SINCE.get(timestamp)
        if timestamp < 0 and (since is None or ctx.api_version < since):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        _fill(
            ctx,
            answer,
            partition,
            _known_offset(partition, timestamp, committed_only=committed_only),
        )
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    is_time = timestamp >= 0 or timestamp == _MAX_TIMESTAMP
    if is_time and partition.log.log_start_offset < partition.log.log_end_offset:
        searches.append(_Search(partition, timestamp, committed_only, answer))
    return answer


def _failed(index: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=error)


def _known_offset(partition: Partition, timestamp: int, *, committed_only: bool) -> _FoundOffset:
    """Return the offset for a special `timestamp` such as -1 (latest), unless it needs a lookup."""
    if timestamp == _LATEST:
        return _FoundOffset(
            partition.last_stable_offset if committed_only else partition.high_watermark
        )
    if timestamp in {_EARLIEST, _EARLIEST_LOCAL}:
        return _FoundOffset(partition.log.log_start_offset)
    return _NOT_FOUND


async def _look_up_timestamps(
    ctx: RequestContext, response: ListOffsetsResponse, searches: list[_Search]
) -> ListOffsetsResponse:
    """Look up the timestamps in another thread, one after another."""
    for search in searches:
        partition, answer = search.partition, search.answer
        try:
            async with ctx.broker.offloaded_reads:
                if search.timestamp == _MAX_TIMESTAMP:
                    result = await partition.reads.offset_of_max_timestamp()
                else:
                    result = await partition.reads.offset_for_timestamp(search.timestamp)
            if result and search.committed_only and result[0] >= partition.last_stable_offset:
                result = None
        except KafkaError as error:
            answer.error_code = error.code
        else:
            _fill(ctx, answer, partition, _FoundOffset(*result) if result else _NOT_FOUND)
    return response


def _fill(
    ctx: RequestContext,
    answer: ListOffsetsPartitionResponse,
    partition: Partition,
    result: _FoundOffset,
) -> None:
    answer.offset, answer.timestamp = result
    if answer.offset >= 0 and ctx.api_version >= LEADER_EPOCH_SINCE:
        answer.leader_epoch = partition.epoch_at(answer.offset)


@handles(
    OffsetForLeaderEpochRequest,
    versions="2-4",
    on_error=OnError(per_partition(same("topic"), same("partition"))),
    parts=(lists("topics.partitions"),),
)
def offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _look_up(ctx, topic.topic, requested, is_denied=is_denied)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
            for is_denied in (_is_denied(ctx, topic.topic),)
        ]
    )


def _is_denied(ctx: RequestContext, topic: str) -> bool:
    is_broker = ctx.sees(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return not is_broker and not ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _look_up(
    ctx: RequestContext, topic: str, requested: OffsetForLeaderPartition, *, is_denied: bool
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=requested.partition, error_code=ErrorCode.NONE)
    if is_denied:
        answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return answer
    try:
        partition = current_partition(
            ctx, topic, requested.partition, requested.current_leader_epoch
        )
        end = partition.end_of_epoch(requested.leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    else:
        if end is not None:
            answer.leader_epoch, answer.end_offset = end
    return answer
