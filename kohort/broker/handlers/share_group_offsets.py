"""DescribeShareGroupOffsets (key 90): return the start offsets and lags of share groups.
AlterShareGroupOffsets (key 91): change start offsets of a group without members.
DeleteShareGroupOffsets (key 92): delete a group's offsets and delivery state for topics.

90 v0-1, 91 and 92 v0. DescribeShareGroupOffsets v1 has the lag.
"""

from collections.abc import Iterable
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.access import denied
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, elements, same
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import check_repeats
from kohort.broker.handlers.shared.share import NOT_HOSTED
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.share.partitions import SharePartitions
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.topic import Topic
from kohort.groups.share.membership import ShareMembership
from kohort.groups.share.records import StoredTopic
from kohort.groups.share.requests import OffsetsResult
from kohort.groups.share.state_log import SharePartitionKey
from kohort.groups.steps import FEW, Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kohort.protocol.types import ZERO_UUID

BY_RESET_POLICY: Final = -1
"""The offset that stands for the group's `share.auto.offset.reset`."""

DENIED: Final = denied(ResourceType.TOPIC)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")


# DescribeShareGroupOffsets.


@handles(
    DescribeShareGroupOffsetsRequest,
    versions="0-1",
    on_error=OnError(elements("groups", "groups", same("group_id"))),
)
def describe_share_group_offsets(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> Steps[DescribeShareGroupOffsetsResponse]:
    check_repeats([requested.group_id for requested in request.groups])
    response = DescribeShareGroupOffsetsResponse(groups=[])
    for requested in request.groups:
        group = DescribeShareGroupOffsetsResponseGroup(
            group_id=requested.group_id, topics=[], error_code=ErrorCode.NONE
        )
        response.groups.append(group)
        try:
            ctx.require(Operation.DESCRIBE, ResourceType.GROUP, requested.group_id)
            error = ctx.broker.groups.read_error(requested.group_id)
            if error:
                raise KafkaError(error)
        except KafkaError as failure:
            group.error_code, group.error_message = failure.code, failure.message
            continue
        group.topics = yield from _described_topics(ctx, requested)
    return response


def _described_topics(
    ctx: RequestContext, requested: DescribeShareGroupOffsetsRequestGroup
) -> Steps[list[DescribeShareGroupOffsetsResponseTopic]]:
    wanted = requested.topics
    is_all = wanted is None
    if wanted is None:
        membership = ctx.broker.groups.host.membership(requested.group_id, ShareMembership)
        wanted = [
            DescribeShareGroupOffsetsRequestTopic(
                topic_name=topic.name, partitions=list(topic.partitions)
            )
            for topic in (() if membership is None else membership.initialized.values())
        ]
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    for position, entry in enumerate(wanted):
        if position % FEW == 0:
            yield
        name = entry.topic_name
        may_describe = ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        if is_all and not may_describe:
            continue
        topic = ctx.broker.topics.get(name) if may_describe else None
        described = DescribeShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=ZERO_UUID if topic is None else topic.topic_id, partitions=[]
        )
        topics.append(described)
        for count, number in enumerate(entry.partitions):
            partition = DescribeShareGroupOffsetsResponsePartition(
                partition_index=number, start_offset=-1, leader_epoch=0, error_code=ErrorCode.NONE
            )
            described.partitions.append(partition)
            if not may_describe:
                partition.error_code, partition.error_message = DENIED.code, DENIED.message
            elif topic is not None:
                _describe(ctx.broker.share_delivery.partitions, requested, topic, partition)
            if count % FEW == 0:
                yield
    return topics


def _describe(
    partitions: SharePartitions,
    group: DescribeShareGroupOffsetsRequestGroup,
    topic: Topic,
    described: DescribeShareGroupOffsetsResponsePartition,
) -> None:
    number = described.partition_index
    try:
        share = partitions.get(group.group_id, topic.topic_id, number)
    except KafkaError as error:
        described.error_code, described.error_message = error.code, error.message
        return
    if share is None or number >= len(topic.partitions):  # Stored state may be damaged.
        return
    window = partitions.window(share)
    if window is None:
        return
    log = topic.partitions[number]
    start_offset = window.start_offset
    described.start_offset = start_offset
    described.leader_epoch = log.leader_epoch
    left = log.high_watermark - start_offset - window.delivery_complete_count
    described.lag = max(left, 0)


# AlterShareGroupOffsets.


@handles(
    AlterShareGroupOffsetsRequest,
    versions="0",
    parts=(lists("topics.partitions", "responses.partitions"),),
)
async def alter_share_group_offsets(
    ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Alter start offsets; answered when they are durable. The partitions' acquired records lose
    their locks.
    """
    group_id = request.group_id
    ctx.require(Operation.READ, ResourceType.GROUP, group_id)
    _check_group_id(group_id)
    response = AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=[])
    topics: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
    alterations: list[_Alteration] = []
    for requested in request.topics:
        name = requested.topic_name
        topic = ctx.broker.topics.get(name)
        error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED
        if not ctx.may(Operation.READ, ResourceType.TOPIC, name):
            topic, error, message = None, DENIED.code, DENIED.message or ""
        answer = topics.get(name)
        if answer is None:
            answer = topics[name] = AlterShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=ZERO_UUID if topic is None else topic.topic_id,
                partitions=[],
            )
            response.responses.append(answer)
        for asked in requested.partitions:
            number, offset = asked.partition_index, asked.start_offset
            partition = AlterShareGroupOffsetsResponsePartition(
                partition_index=number, error_code=error, error_message=message
            )
            answer.partitions.append(partition)
            if topic is None or not 0 <= number < len(topic.partitions):
                continue
            if offset < BY_RESET_POLICY:
                partition.error_code = ErrorCode.INVALID_REQUEST
                partition.error_message = f"The start offset {offset} is negative."
                continue
            alterations.append(_Alteration(topic, number, offset, partition))
    await _alter(ctx, group_id, alterations)
    return response


class _Alteration:
    def __init__(
        self,
        topic: Topic,
        number: int,
        offset: int,
        answer: AlterShareGroupOffsetsResponsePartition,
    ) -> None:
        self.topic = topic
        self.number = number
        self.offset = offset
        self.answer = answer
        self.stored: Deferred[KafkaError | None] = Deferred()

    def begin(self, partitions: SharePartitions, group_id: str, state_epoch: int) -> None:
        key = SharePartitionKey(group_id, self.topic.topic_id, self.number)
        partitions.alter(key, self._start(), state_epoch, self.stored.set_result)

    def _start(self) -> int | None:
        """Return the new start offset, moved into the log's range; None: use the reset policy."""
        if self.offset == BY_RESET_POLICY:
            return None
        partition: Partition = self.topic.partitions[self.number]
        return min(max(self.offset, partition.log.log_start_offset), partition.high_watermark)


async def _alter(ctx: RequestContext, group_id: str, alterations: list[_Alteration]) -> None:
    """Alter the offsets. Raises KafkaError, for example if the group has members."""
    partitions = ctx.broker.share_delivery.partitions

    def begin(state_epoch: int) -> Steps[None]:
        for alteration in alterations:
            alteration.begin(partitions, group_id, state_epoch)
            yield

    result = await ctx.broker.share_groups.alter_offsets(group_id, _stored(alterations), begin)
    if result.error:
        raise KafkaError(result.error, result.message)
    for alteration in alterations:
        error = await alteration.stored
        answer = alteration.answer
        answer.error_code, answer.error_message = ErrorCode.NONE, None
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message


def _stored(alterations: Iterable[_Alteration]) -> dict[bytes, StoredTopic]:
    numbers: dict[bytes, set[int]] = {}
    names: dict[bytes, str] = {}
    for alteration in alterations:
        topic = alteration.topic
        names[topic.topic_id] = topic.name
        numbers.setdefault(topic.topic_id, set()).add(alteration.number)
    return {key: StoredTopic(names[key], tuple(sorted(found))) for key, found in numbers.items()}


# DeleteShareGroupOffsets.


@handles(DeleteShareGroupOffsetsRequest, versions="0", parts=(lists("topics", "responses"),))
def delete_share_group_offsets(
    ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | Deferred[DeleteShareGroupOffsetsResponse]:
    """Delete a group's state for these topics; answered when the deletion is durable."""
    group_id = request.group_id
    ctx.require(Operation.DELETE, ResourceType.GROUP, group_id)
    _check_group_id(group_id)
    response = DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=[])
    known: list[DeleteShareGroupOffsetsResponseTopic] = []
    for name in dict.fromkeys(requested.topic_name for requested in request.topics):
        topic = ctx.broker.topics.get(name)
        answer = DeleteShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=ZERO_UUID,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=NOT_HOSTED,
        )
        response.responses.append(answer)
        if not ctx.may(Operation.READ, ResourceType.TOPIC, name):
            answer.error_code, answer.error_message = DENIED.code, DENIED.message
        elif topic is not None:
            answer.topic_id = topic.topic_id
            known.append(answer)

    def complete(result: OffsetsResult) -> DeleteShareGroupOffsetsResponse:
        if result.error:
            raise KafkaError(result.error, result.message)
        for answer in known:
            if answer.topic_id in result.missing:
                answer.topic_id = ZERO_UUID
                answer.error_message = "There is no offset information to delete."
            else:
                answer.error_code, answer.error_message = ErrorCode.NONE, None
        return response

    # Called even if no topic is valid, because an unknown group fails the whole request.
    topic_ids = [answer.topic_id for answer in known]
    return ctx.broker.share_groups.delete_offsets(group_id, topic_ids).map(complete)
