"""OffsetDelete (key 47): delete a group's offsets of some partitions.

v0. Offsets of a deleted topic cannot be deleted this way; they are deleted with the topic. The
rules are in :mod:`kohort.groups.offsets.removal`.
"""

from dataclasses import dataclass, field

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.requests import DeleteOffsetsResult, TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@dataclass(slots=True, eq=False)
class _Draft:
    """The response so far, and the partitions that the group has to decide on."""

    response: OffsetDeleteResponse
    partitions: list[TopicPartition] = field(default_factory=list)
    open: list[OffsetDeleteResponsePartition] = field(default_factory=list)
    """The responses for `partitions`."""

    def complete(self, result: DeleteOffsetsResult) -> OffsetDeleteResponse:
        """Fill in the group's results; a group-level error replaces everything else."""
        if result.error:
            return OffsetDeleteResponse(error_code=result.error, topics=[])
        for answer, error in zip(self.open, result.partitions, strict=True):
            answer.error_code = error
        return self.response


@handles(
    OffsetDeleteRequest,
    versions="0",
    parts=(lists("topics.partitions"),),
)
def offset_delete(
    ctx: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
    """Delete offsets; answered when that is durable."""
    ctx.require(Operation.DELETE, ResourceType.GROUP, request.group_id)
    draft = _Draft(OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=[]))
    for topic in request.topics:
        _add_topic(ctx, draft, topic)
    # The group is asked even if no partition is left: it may not exist.
    return ctx.broker.groups.delete_offsets(request.group_id, draft.partitions).map(draft.complete)


def _add_topic(ctx: RequestContext, draft: _Draft, requested: OffsetDeleteRequestTopic) -> None:
    topic = ctx.broker.topics.get(requested.name)
    count = 0 if topic is None else len(topic.partitions)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not ctx.may(Operation.READ, ResourceType.TOPIC, requested.name):
        count, error = 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answers = OffsetDeleteResponseTopic(name=requested.name, partitions=[])
    if requested.partitions:
        draft.response.topics.append(answers)
    for partition in requested.partitions:
        index = partition.partition_index
        answer = OffsetDeleteResponsePartition(partition_index=index, error_code=ErrorCode.NONE)
        answers.partitions.append(answer)
        if 0 <= index < count:
            draft.open.append(answer)
            draft.partitions.append(TopicPartition(requested.name, index))
        else:
            answer.error_code = error
