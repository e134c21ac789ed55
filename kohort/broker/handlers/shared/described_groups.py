"""Builds descriptions and assignments of consumer groups and share groups, whose messages are
alike.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.handlers.shared.checks import check_repeats
from kohort.groups.steps import FEW, Steps
from kohort.groups.topics import Partition, Topics, by_topic
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import consumer_group_describe as described
from kohort.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kohort.protocol.messages.consumer_group_heartbeat import Assignment, TopicPartitions
from kohort.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

MESSAGE_CHARS: Final = 1_000
"""Maximum length of an error message, which may contain an id of 32 KiB; the rest is cut off."""


_Response = TypeVar("_Response", ConsumerGroupDescribeResponse, ShareGroupDescribeResponse)


def describe_each(
    ctx: RequestContext,
    request: ConsumerGroupDescribeRequest | ShareGroupDescribeRequest,
    describe: Callable[[RequestContext, str], Steps[Any]],
    response: _Response,
) -> Steps[_Response]:
    """Add the description of each requested group to the response; one step for each group.

    Args:
        describe: returns the description of a group, or the error.
    """
    check_repeats(request.group_ids)
    for group_id in request.group_ids:
        group = yield from describe(ctx, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = ctx.operations(ResourceType.GROUP, group_id)
        response.groups.append(group)
        yield
    return response


def description_error(ctx: RequestContext, group_id: str) -> ErrorCode:
    """Return why a group cannot be described to this client, or NONE. Does not check whether the
    group exists.
    """
    if not ctx.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ctx.broker.groups.read_error(group_id) if group_id else ErrorCode.INVALID_GROUP_ID


def assignment_of(partitions: Iterable[Partition] | None) -> Assignment | None:
    """Return the assignment in the response to a heartbeat; None if the member knows it already."""
    if partitions is None:
        return None
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in by_topic(partitions).items()
        ]
    )


def described_assignment(
    topics: Topics, partitions: Iterable[Partition]
) -> Steps[described.Assignment]:
    """Return partitions with the names of their topics; those of deleted topics are left out."""
    assignment = described.Assignment(topic_partitions=[])
    for count, (topic_id, numbers) in enumerate(by_topic(partitions).items(), start=1):
        if count % FEW == 0:
            yield
        name = topics.name_of(topic_id)
        if name is not None:
            assignment.topic_partitions.append(
                described.TopicPartitions(
                    topic_id=topic_id, topic_name=name, partitions=list(numbers)
                )
            )
    return assignment
