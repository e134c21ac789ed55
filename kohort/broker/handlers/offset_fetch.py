"""OffsetFetch (key 9): the committed offsets of a group, or in v8 and later of several groups.

Only durable offsets are returned, and only for the topic that they were committed for, not for a
later topic of the same name. A partition without a commit has offset -1, which is no error; a
pending transactional offset is an error for clients that require stable offsets. For classic groups
the member id and epoch (v9) are ignored.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, elements, per_partition, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import REPEATS_MAX, check_repeats
from kohort.groups.group import Group
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kohort.protocol.types import ZERO_UUID

_ELEMENTS_PER_STEP: Final = 200
"""Topics or partitions handled before other requests may run. A long request is not split into
parts, because the response lists the unknown topics of the whole request last."""

TOP_LEVEL_ERROR_SINCE: Final = 2
SEVERAL_GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10


_Wanted: TypeAlias = tuple[str | None, bytes, bytes, Sequence[int]]
"""A topic's name (None for an unknown topic id), the id for the response, the id of the topic that
now has the name (zero if none has it), and the requested partitions."""


@handles(
    OffsetFetchRequest,
    versions="1-10",
    on_error=OnError(
        elements("groups", "groups", same("group_id")),
        per_partition(
            same("name"),
            {"partition_index": ITSELF},
            requested="partition_indexes",
            committed_offset=-1,
            committed_leader_epoch=-1,
        ),
    ),
)
def offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    """Return committed offsets; never waits."""
    stable = request.require_stable
    if ctx.api_version >= SEVERAL_GROUPS_SINCE:
        if len(request.groups) > 1:
            check_repeats(group.group_id for group in request.groups)
        groups = []
        for group in request.groups:
            groups.append((yield from _fetch_group(ctx, group, stable=stable)))
            yield
        return OffsetFetchResponse(topics=[], groups=groups)
    requested = OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)
    fetched = yield from _fetch_group(ctx, requested, stable=stable)
    if fetched.error_code and ctx.api_version < TOP_LEVEL_ERROR_SINCE:
        fetched.topics = [
            _failed_topic(topic, fetched.error_code) for topic in request.topics or ()
        ]
    return OffsetFetchResponse(topics=fetched.topics, error_code=fetched.error_code)


def _fetch_group(
    ctx: RequestContext, requested: OffsetFetchRequestGroup, *, stable: bool
) -> Steps[OffsetFetchResponseGroup]:
    answer = OffsetFetchResponseGroup(group_id=requested.group_id, topics=[])
    if not ctx.may(Operation.DESCRIBE, ResourceType.GROUP, requested.group_id):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer
    answer.error_code = ctx.broker.groups.validate_fetch(
        requested.group_id, requested.member_id, requested.member_epoch
    )
    if answer.error_code:
        return answer
    group = ctx.broker.groups.host.group(requested.group_id)
    if requested.topics is None:
        wanted = list(_all_topics(ctx, group))
    else:
        wanted = []
        for topic in requested.topics:
            wanted.append(_wanted(ctx, topic))
            if not len(wanted) % _ELEMENTS_PER_STEP:
                yield
        if len(wanted) > 1 or (wanted and len(wanted[0][-1]) > REPEATS_MAX):
            check_repeats((topic[:2], index) for topic in wanted for index in topic[-1])
    failed = list[OffsetFetchResponseTopic]()
    for name, topic_id, asked_id, indexes in wanted:
        error = ErrorCode.NONE
        if name is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif not ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = list[OffsetFetchResponsePartition]()
        for index in indexes:
            partitions.append(
                _without_position(index, error)
                if name is None or error
                else _position(group, name, index, asked_id, stable=stable)
            )
            if not len(partitions) % _ELEMENTS_PER_STEP:
                yield
        (failed if error else answer.topics).append(
            OffsetFetchResponseTopic(name=name or "", topic_id=topic_id, partitions=partitions)
        )
        yield
    # As in Kafka, unknown and denied topics come last.
    answer.topics += failed
    return answer


def _wanted(ctx: RequestContext, requested: OffsetFetchRequestTopic) -> _Wanted:
    if ctx.api_version < TOPIC_IDS_SINCE:
        named = ctx.broker.topics.get(requested.name)
        topic_id = ZERO_UUID if named is None else named.topic_id
        return requested.name, ZERO_UUID, topic_id, requested.partition_indexes
    topic = ctx.broker.topics.get_by_id(requested.topic_id)
    name = None if topic is None else topic.name
    return name, requested.topic_id, requested.topic_id, requested.partition_indexes


def _all_topics(ctx: RequestContext, group: Group | None) -> Iterator[_Wanted]:
    if group is None:
        return
    for name, partitions in group.offsets.topics().items():
        if not ctx.sees(Operation.DESCRIBE, ResourceType.TOPIC, name):
            continue
        topic = ctx.broker.topics.get(name)
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        if topic is None and ctx.api_version >= TOPIC_IDS_SINCE:
            continue
        indexes = tuple([index for index, offset in partitions.items() if offset.is_of(topic_id)])
        if indexes:
            yield name, topic_id, topic_id, indexes


def _position(
    group: Group | None, topic: str, index: int, topic_id: bytes, *, stable: bool
) -> OffsetFetchResponsePartition:
    error, committed = ErrorCode.NONE, None
    if stable and group is not None and group.offsets.is_unstable(topic, index):
        error = ErrorCode.UNSTABLE_OFFSET_COMMIT
    elif group is not None:
        committed = group.committed(topic, index, topic_id)
    if committed is None:
        return _without_position(index, error)
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )


def _without_position(index: int, error: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index, committed_offset=-1, metadata="", error_code=error
    )


def _failed_topic(requested: OffsetFetchRequestTopic, error: int) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=requested.name,
        partitions=[_without_position(index, error) for index in requested.partition_indexes],
    )
