"""OffsetCommit (key 8): a member, or a client without membership, commits offsets.
OffsetDelete (key 47): delete a group's offsets of some partitions.

Partitions that do not exist are answered here; the rules for existing partitions are in
:mod:`kohort.groups.offsets.commit` and :mod:`kohort.groups.offsets.removal`. Offsets of a deleted
topic cannot be deleted by OffsetDelete; they are deleted with the topic.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import BY_NAME_OR_ID, OnError, per_partition, same
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.committed_topics import look_up
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    DeleteOffsetsResult,
    OffsetToCommit,
    TopicPartition,
)
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

GROUP_ID_NOT_FOUND_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 10
_READ: Final = Operation.READ
_GROUP: Final = ResourceType.GROUP

ENCODED_SUCCESSES_MAX: Final = 500
"""Maximum cached responses without errors, one for each list of committed partitions."""

ENCODED_PARTITIONS_MAX: Final = 16
"""Maximum partitions in a cached response. The partitions exist, so topic names have at most 249
bytes, and the cache takes at most some 5 MB."""

_RequestedTopics: TypeAlias = tuple[tuple[str, bytes, tuple[int, ...]], ...]
"""Name, id and partition indexes of each topic, in the order of the request; hashable."""


def _merge_repeats(_ctx: RequestContext, request: OffsetCommitRequest) -> None:
    """Merge topics that the request lists several times, and drop topics without partitions, so
    that the topics are those of the response.
    """
    topics: dict[str | bytes, OffsetCommitRequestTopic] = {}
    for topic in request.topics:
        if topic.partitions:
            first = topics.setdefault(topic.name or topic.topic_id, topic)
            if first is not topic:
                first.partitions += topic.partitions
    request.topics = list(topics.values())


@handles(
    OffsetCommitRequest,
    versions="2-10",
    on_error=OnError(per_partition(BY_NAME_OR_ID, same("partition_index"))),
    parts=(lists("topics.partitions"),),
    prepare=_merge_repeats,
    part_max=500,
)
def offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | EncodedResponse | Deferred[OffsetCommitResponse | EncodedResponse]:
    """Commit offsets; the response is sent when the accepted offsets are durable."""
    ctx.require(_READ, _GROUP, request.group_id)
    version = ctx.header.api_version
    offsets: list[OffsetToCommit] = []
    errors: list[ErrorCode] = []
    by_id = version >= TOPIC_IDS_SINCE
    for topic in request.topics:
        look_up(ctx, topic, offsets, errors, by_id=by_id)
    if not offsets:
        return _respond(_requested_topics(request), errors)

    def complete(result: CommitResult) -> OffsetCommitResponse | EncodedResponse:
        assert len(result.errors) == len(offsets)
        requested = _requested_topics(request)
        if any(result.errors) or len(offsets) != len(errors):
            # Replace each NONE in `errors` by the group's result for the next element of `offsets`.
            of_group = iter(result.errors)
            return _respond(requested, [error or next(of_group) for error in errors])
        if len(offsets) <= ENCODED_PARTITIONS_MAX:
            return _encoded_success(version, requested)
        return _respond(requested, result.errors)

    ticket = ctx.broker.groups.commit(
        request.group_id,
        CommitRequest(
            tuple(offsets),
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            retention_time_ms=request.retention_time_ms,
            allows_epoch=version >= GROUP_ID_NOT_FOUND_SINCE,
        ),
        may_answer_group_not_found=version >= GROUP_ID_NOT_FOUND_SINCE,
    )
    return ticket.map(complete)


def _requested_topics(request: OffsetCommitRequest) -> _RequestedTopics:
    """Return the topics that have partitions; as in Kafka, the response omits topics without
    partitions.
    """
    topics = []
    for topic in request.topics:
        if topic.partitions:
            # Not a comprehension: in Python 3.11 that would be another function call per commit.
            indexes: list[int] = []
            for partition in topic.partitions:
                indexes.append(partition.partition_index)  # noqa: PERF401
            topics.append((topic.name, topic.topic_id, tuple(indexes)))
    return tuple(topics)


@lru_cache(maxsize=ENCODED_SUCCESSES_MAX)
def _encoded_success(version: int, requested: _RequestedTopics) -> EncodedResponse:
    """Encode the response to a commit whose partitions were all stored.

    Cached, because a client commits the same partitions again and again. To be called only for at
    most ENCODED_PARTITIONS_MAX partitions, which bounds the cache.
    """
    no_errors = [ErrorCode.NONE] * sum(len(partitions) for *_, partitions in requested)
    response = _respond(requested, no_errors)
    return EncodedResponse(codec(OffsetCommitResponse, version).encode(response))


def _respond(requested: _RequestedTopics, errors: Iterable[ErrorCode]) -> OffsetCommitResponse:
    """Create the response. A topic that the request lists several times is listed once, with all
    its partitions.

    Args:
        errors: one for each partition of `requested`, in order.
    """
    topics: dict[str | bytes, OffsetCommitResponseTopic] = {}
    left = iter(errors)
    for name, topic_id, partitions in requested:
        topic = topics.get(name or topic_id)
        if topic is None:
            topic = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
            topics[name or topic_id] = topic
        topic.partitions += [
            OffsetCommitResponsePartition(partition_index=index, error_code=next(left))
            for index in partitions
        ]
    return OffsetCommitResponse(topics=list(topics.values()))


@handles(
    OffsetDeleteRequest,
    versions="0",
    parts=(lists("topics.partitions"),),
)
def offset_delete(
    ctx: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
    """Delete offsets; answered when the deletion is durable."""
    ctx.require(Operation.DELETE, ResourceType.GROUP, request.group_id)
    response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=[])
    partitions: list[TopicPartition] = []
    undecided: list[OffsetDeleteResponsePartition] = []
    for requested in request.topics:
        topic = ctx.broker.topics.get(requested.name)
        count = 0 if topic is None else len(topic.partitions)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not ctx.may(Operation.READ, ResourceType.TOPIC, requested.name):
            count, error = 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answers = OffsetDeleteResponseTopic(name=requested.name, partitions=[])
        if requested.partitions:
            response.topics.append(answers)
        for partition in requested.partitions:
            index = partition.partition_index
            answer = OffsetDeleteResponsePartition(partition_index=index, error_code=error)
            answers.partitions.append(answer)
            if 0 <= index < count:
                undecided.append(answer)
                partitions.append(TopicPartition(requested.name, index))

    def complete(result: DeleteOffsetsResult) -> OffsetDeleteResponse:
        if result.error:
            return OffsetDeleteResponse(error_code=result.error, topics=[])
        for answer, error in zip(undecided, result.partitions, strict=True):
            answer.error_code = error
        return response

    # Called even if no partition is valid, because an unknown group fails the whole request.
    return ctx.broker.groups.delete_offsets(request.group_id, partitions).map(complete)
