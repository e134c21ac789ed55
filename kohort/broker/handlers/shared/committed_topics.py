"""Looks up the topics of OffsetCommit and TxnOffsetCommit. Contains no handlers."""

from typing import Final

from kohort.broker.core.security.acls import Operation
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.handlers.shared.checks import may_use
from kohort.groups.requests import OffsetToCommit
from kohort.protocol.errors import NO_ERROR, ErrorCode
from kohort.protocol.messages.offset_commit import OffsetCommitRequestTopic
from kohort.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic

_READ: Final = Operation.READ


def look_up(
    ctx: RequestContext,
    requested: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
    offsets: list[OffsetToCommit],
    errors: list[ErrorCode],
    *,
    by_id: bool,
) -> None:
    """Look up one topic of a request, and its partitions.

    For each partition, appends an error to `errors`, and, if that is NONE, the offset to store to
    `offsets`.

    Args:
        by_id: whether the request identifies the topic by id.
    """
    if by_id:
        topic = ctx.broker.topics.get_by_id(requested.topic_id)
    else:
        topic = ctx.broker.topics.get(requested.name)
    if not may_use(ctx, _READ, topic, requested.name, by_id=by_id):
        errors += [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(requested.partitions)
        return
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        errors += [error] * len(requested.partitions)
        return
    name, topic_id, count = topic.name, topic.topic_id, len(topic.partitions)
    for partition in requested.partitions:
        index = partition.partition_index
        if not 0 <= index < count:
            errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        errors.append(NO_ERROR)
        offsets.append(
            OffsetToCommit(
                name,
                index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                topic_id,
            )
        )
