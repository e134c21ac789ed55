"""ListOffsets (key 2): the offset that belongs to a time, or one of the ends of a log.

v1-11 as in Kafka 4.4. With isolation level 1 (v2, KIP-98) the end is the last stable offset, and
nothing is found behind it. Nothing is tiered: the local log start is the log start, the last tiered
and the earliest pending upload offsets are -1. The timeout of v10 bounds remote lookups, which
there are none of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import Mirror, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.leader_epoch import current_partition
from kohort.broker.runtime.later import Later
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LEADER_EPOCH_SINCE: Final = 4
_NOT_FOUND: Final = (-1, -1)

_LATEST_RECORD: Final = -3

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_LATEST: Final = -1
_SPECIAL: Final[dict[int, tuple[int, Callable[[Partition], tuple[int, int]]]]] = {
    _LATEST: (0, lambda partition: (partition.high_watermark, -1)),
    -2: (0, lambda partition: (partition.log.log_start_offset, -1)),
    _LATEST_RECORD: (7, lambda _: _NOT_FOUND),
    -4: (8, lambda partition: (partition.log.log_start_offset, -1)),
    -5: (9, lambda _: _NOT_FOUND),
    -6: (11, lambda _: _NOT_FOUND),
}
"""timestamp -> (first request version, partition -> (offset, timestamp)); the latest record, like
every time, is looked for on another thread unless the log is empty."""


class _Search(NamedTuple):
    """A time that has to be looked up, and where the answer goes."""

    partition: Partition
    timestamp: int
    committed_only: bool
    answer: ListOffsetsPartitionResponse


@handles(
    ListOffsetsRequest,
    versions="1-11",
    on_error=OnError(
        Mirror(
            response="topics",
            request="topics",
            copied=same("name"),
            inner=Mirror(
                response="partitions",
                request="partitions",
                copied=same("partition_index"),
                values={"timestamp": -1, "offset": -1, "leader_epoch": -1},
            ),
        )
    ),
)
def list_offsets(
    ctx: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Later[ListOffsetsResponse]:
    """One answer per partition, though it be named twice; one that fails does so alone."""
    asked: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    for topic in request.topics:
        partitions = asked.setdefault(topic.name, {})
        for partition in topic.partitions:
            partitions.setdefault(partition.partition_index, []).append(partition)
    searches: list[_Search] = []
    response = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    _look_up(ctx, request.isolation_level, name, same[0], searches)
                    if len(same) == 1
                    else _repeated(same[0])
                    for same in partitions.values()
                ],
            )
            for name, partitions in asked.items()
        ]
    )
    if not searches:
        return response
    return Later.of(_search(ctx, response, searches), ctx.broker.tasks, name="list_offsets")


async def _search(
    ctx: RequestContext, response: ListOffsetsResponse, searches: list[_Search]
) -> ListOffsetsResponse:
    for search in searches:
        partition, answer = search.partition, search.answer
        try:
            async with ctx.broker.reads_aside:
                if search.timestamp == _LATEST_RECORD:
                    found = await partition.reads.offset_of_max_timestamp()
                else:
                    found = await partition.reads.offset_for_timestamp(search.timestamp)
            if found and search.committed_only and found[0] >= partition.last_stable_offset:
                found = None
        except KafkaError as error:
            answer.error_code = error.code
        else:
            _fill(ctx, answer, partition, found or _NOT_FOUND)
    return response


def _repeated(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=ErrorCode.INVALID_REQUEST
    )


def _look_up(
    ctx: RequestContext,
    isolation_level: int,
    name: str,
    asked: ListOffsetsPartition,
    searches: list[_Search],
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=ErrorCode.NONE
    )
    committed_only = isolation_level == READ_COMMITTED
    index, epoch = asked.partition_index, asked.current_leader_epoch
    try:
        partition = current_partition(ctx, name, index, epoch)
        if isolation_level not in {READ_UNCOMMITTED, READ_COMMITTED}:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        partition.check_online()
        found = _find(ctx.api_version, partition, asked.timestamp)
        if committed_only and asked.timestamp == _LATEST:
            found = partition.last_stable_offset, -1
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    _fill(ctx, answer, partition, found)
    is_time = asked.timestamp >= 0 or asked.timestamp == _LATEST_RECORD
    if is_time and partition.log.log_start_offset < partition.log.log_end_offset:
        searches.append(_Search(partition, asked.timestamp, committed_only, answer))
    return answer


def _fill(
    ctx: RequestContext,
    answer: ListOffsetsPartitionResponse,
    partition: Partition,
    found: tuple[int, int],
) -> None:
    answer.offset, answer.timestamp = found
    if answer.offset >= 0 and ctx.api_version >= LEADER_EPOCH_SINCE:
        answer.leader_epoch = partition.epoch_at(answer.offset)


def _find(version: int, partition: Partition, timestamp: int) -> tuple[int, int]:
    """(offset, timestamp) for a special value; -1 for what does not apply, and for times."""
    if timestamp >= 0:
        return _NOT_FOUND
    since, find = _SPECIAL.get(timestamp, (None, None))
    if since is None or find is None or version < since:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return find(partition)
