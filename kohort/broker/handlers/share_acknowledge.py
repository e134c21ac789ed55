"""ShareAcknowledge (key 79): report how the processing of acquired records ended (KIP-932).

v1-2. v2 renews locks (KIP-1222). The answer waits until the changes are durable. A request that
closes the session also releases the records that the member has locked in the session's partitions.
"""

from typing import TypeAlias

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared import share
from kohort.broker.handlers.shared.share import Acknowledgements
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.share.acknowledge import Acknowledging
from kohort.broker.share.partition import SharePartition
from kohort.groups.share.sessions import SessionPartition, ShareSession
from kohort.groups.share.window import AcknowledgementError
from kohort.groups.steps import Steps
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError
from kohort.protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

_Answer: TypeAlias = "ShareAcknowledgeResponse | Deferred[ShareAcknowledgeResponse]"


@handles(ShareAcknowledgeRequest, versions="1-2", long_bytes=share.LONG_BYTES)
def share_acknowledge(ctx: RequestContext, request: ShareAcknowledgeRequest) -> Steps[_Answer]:
    error = share.request_error(ctx, request.group_id, request.member_id)
    if error:
        return _failed(error)
    assert request.group_id is not None
    assert request.member_id is not None
    named = yield from share.collected(request.topics)
    try:
        session = ctx.broker.share_delivery.accept_acknowledge(
            request.group_id, request.member_id, request.share_session_epoch
        )
    except KafkaError as refused:
        return _failed(refused.code)
    return (yield from _acknowledge(ctx, session, named, is_renew_ack=request.is_renew_ack))


def _acknowledge(
    ctx: RequestContext, session: ShareSession, named: Acknowledgements, *, is_renew_ack: bool
) -> Steps[_Answer]:
    group_id = session.group_id
    acknowledging = Acknowledging(ctx.broker.share_delivery.partitions, session.member_id)
    shares: dict[SessionPartition, SharePartition] = {}
    errors: dict[SessionPartition, AcknowledgementError] = {}
    for key, batches in named.items():
        if not batches:
            continue
        yield
        located = share.locate(ctx, group_id, key)
        if located.share is None:
            errors[key] = share.acknowledgement_error(located.error, located.message)
            continue
        shares[key] = located.share
        invalid = share.apply(
            ctx,
            acknowledging,
            located.share,
            batches,
            is_renew_ack=is_renew_ack,
            releases=session.is_closed and key in session.partitions,
        )
        if invalid is not None:
            errors[key] = invalid
    if session.is_closed:
        acknowledging.release_all(group_id, session.partitions)
    answer: Deferred[ShareAcknowledgeResponse] = Deferred()

    def respond() -> None:
        for key, acknowledged in shares.items():
            if key not in errors and acknowledged in acknowledging.errors:
                errors[key] = acknowledging.errors[acknowledged]
        answer.set_result(_response(named, errors, share.lock_timeout_ms(ctx, group_id)))

    acknowledging.store(respond)
    return answer.result() if answer.is_done else answer


def _failed(error: ErrorCode) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        throttle_time_ms=0, error_code=error, responses=[], node_endpoints=[]
    )


def _response(
    named: Acknowledgements,
    errors: dict[SessionPartition, AcknowledgementError],
    lock_timeout_ms: int,
) -> ShareAcknowledgeResponse:
    topics: dict[bytes, list[PartitionData]] = {}
    for key, batches in named.items():
        if batches:
            error, message = errors.get(key, (NO_ERROR, None))
            topics.setdefault(key.topic_id, []).append(
                PartitionData(
                    partition_index=key.partition,
                    error_code=error,
                    error_message=message,
                    current_leader=share.NO_LEADER_CHANGE,
                )
            )
    return ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=NO_ERROR,
        acquisition_lock_timeout_ms=lock_timeout_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=[],
    )
