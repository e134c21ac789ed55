"""Checks and answers that ShareFetch and ShareAcknowledge share."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.handlers.shared.checks import is_member_id
from kohort.broker.share.acknowledge import Acknowledging
from kohort.broker.share.fetch import NOT_INITIALIZED
from kohort.broker.share.partition import SharePartition
from kohort.broker.topics.partition import Partition
from kohort.groups.share.sessions import SessionPartition
from kohort.groups.share.window import AcknowledgementError, AcknowledgeType, are_valid
from kohort.groups.steps import FEW, Steps
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError
from kohort.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgeTopic,
    LeaderIdAndEpoch,
)
from kohort.protocol.messages.share_fetch import FetchTopic

RENEWS_SINCE: Final = 2
"""The first version of ShareFetch and ShareAcknowledge with the acknowledgement type renew."""

NOT_HOSTED: Final = "This server does not host this topic-partition."

LONG_BYTES: Final = 32 * 1024
"""Requests above this size are decoded in slices. Even a request of librdkafka that acknowledges
500 records one by one is smaller."""


NO_LEADER_CHANGE: Final = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)

Acknowledgements = dict[SessionPartition, list[AcknowledgementBatch]]


def request_error(ctx: RequestContext, group_id: str | None, member_id: str | None) -> ErrorCode:
    """Return an error if the group id is missing or denied, or the member id invalid; else NONE.
    Does not check the session.
    """
    if group_id is None:
        return ErrorCode.INVALID_REQUEST
    if not ctx.may(Operation.READ, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return NO_ERROR if is_member_id(member_id) else ErrorCode.INVALID_REQUEST


def collected(
    topics: Iterable[FetchTopic | AcknowledgeTopic],
) -> Steps[Acknowledgements]:
    """Return the acknowledgements of each partition, in the order of the request."""
    named: Acknowledgements = {}
    for count, topic in enumerate(topics):
        if count % FEW == FEW - 1:
            yield
        for partition in topic.partitions:
            key = SessionPartition(topic.topic_id, partition.partition_index)
            named.setdefault(key, []).extend(partition.acknowledgement_batches)
    return named


class Located(NamedTuple):
    """A partition that a request names, or the error for it."""

    share: SharePartition | None
    log: Partition | None
    error: ErrorCode = NO_ERROR
    message: str | None = None


def locate(
    ctx: RequestContext, group_id: str, key: SessionPartition, *, was_in_session: bool = False
) -> Located:
    """Return the share-partition and the log of a partition, or its error.

    `was_in_session`: the partition was added to the session earlier, when its topic existed.
    """
    topic = ctx.broker.topics.get_by_id(key.topic_id)
    if topic is None:
        error = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if was_in_session else ErrorCode.UNKNOWN_TOPIC_ID
        )
        return Located(None, None, error)
    if not ctx.may(Operation.READ, ResourceType.TOPIC, topic.name):
        return Located(None, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not 0 <= key.partition < len(topic.partitions):
        return Located(None, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        share = ctx.broker.share_delivery.partitions.get(group_id, *key)
    except KafkaError as error:
        return Located(None, None, error.code, error.message)
    if share is None:
        return Located(None, None, ErrorCode.UNKNOWN_SERVER_ERROR, NOT_INITIALIZED)
    return Located(share, topic.partitions[key.partition])


def acknowledgement_error(error: ErrorCode, message: str | None) -> AcknowledgementError:
    """Convert an error of `locate` to the error of the partition's acknowledgements."""
    if message == NOT_INITIALIZED:
        return AcknowledgementError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    return AcknowledgementError(error, message)


def apply(
    ctx: RequestContext,
    acknowledging: Acknowledging,
    share: SharePartition,
    batches: Sequence[AcknowledgementBatch],
    *,
    is_renew_ack: bool,
    releases: bool,
) -> AcknowledgementError | None:
    """Apply the acknowledgements of a share-partition; if the request is invalid, return an error.

    `releases`: also release the member's other records of the share-partition. If applying a valid
    request fails, for example with INVALID_RECORD_STATE, `acknowledging.errors` gets the error.
    """
    may_be_renewed = ctx.api_version >= RENEWS_SINCE
    highest_type = AcknowledgeType.RENEW if may_be_renewed else AcknowledgeType.REJECT
    if not are_valid(batches, may_renew=is_renew_ack, highest_type=highest_type):
        return AcknowledgementError(ErrorCode.INVALID_REQUEST)
    now_ms = ctx.broker.clock.monotonic_ms()
    acknowledging.acknowledge(share, now_ms, batches, releases=releases)
    return None


def lock_timeout_ms(ctx: RequestContext, group_id: str) -> int:
    return ctx.broker.share_delivery.partitions.settings(group_id).window.lock_duration_ms
