"""DeleteTopics (key 20): delete topics with all their records, by name or by id.

v1-6 as in Kafka 4.4. The response is sent when the deletion is visible to every client and survives
a crash; the files are removed afterwards. The request's timeout is ignored, but a negative timeout
fails, as in Kafka. Internal topics cannot be deleted.
"""

from collections import Counter
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.access import denied
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import BY_NAME_OR_ID, ITSELF, OnError, elements
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import Mutations
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.topic_changes import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kohort.protocol.types import ZERO_UUID

BY_ID_SINCE: Final = 6
STRICT_SINCE: Final = 5
"""The first version whose clients handle the error THROTTLING_QUOTA_EXCEEDED."""
DELETION_DISABLED_SINCE: Final = 3


@handles(
    DeleteTopicsRequest,
    versions="1-6",
    on_error=OnError(
        elements("responses", "topics", BY_NAME_OR_ID),
        elements("responses", "topic_names", {"name": ITSELF}),
    ),
)
async def delete_topics(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete the topics together; one result per topic."""
    requested_topics = request.topics
    if ctx.api_version < BY_ID_SINCE:
        requested_topics = [
            DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names
        ]
    time_slice = Slice(ctx.broker.clock)
    answers: list[DeletableTopicResult | None] = []
    counts: Counter[tuple[str | None, bytes]] = Counter()
    for requested in requested_topics:
        if request.timeout_ms < 0:
            answers.append(_too_late(requested))
        else:
            counts[requested.name, requested.topic_id] += 1
        await time_slice.pause()
    named = {name for name, _ in counts}, {topic_id for _, topic_id in counts}
    mutations = Mutations(ctx, is_strict=ctx.api_version >= STRICT_SINCE)
    deletable: list[tuple[DeletableTopicResult, Topic]] = []
    for state, times in counts.items():
        answer, topic = _check(ctx, mutations, *state, is_repeated=times > 1, named=named)
        answers.append(answer)
        if answer is not None and topic is not None:
            deletable.append((answer, topic))
        await time_slice.pause()
    errors = await ctx.broker.topics.changes.delete_topics([topic for _, topic in deletable])
    for (answer, _), error in zip(deletable, errors, strict=True):
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message
    return DeleteTopicsResponse(
        throttle_time_ms=mutations.throttle_ms,
        responses=[answer for answer in answers if answer is not None],
    )


def _too_late(requested: DeleteTopicState) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=requested.name, topic_id=requested.topic_id, error_code=ErrorCode.REQUEST_TIMED_OUT
    )


def _check(
    ctx: RequestContext,
    mutations: Mutations,
    name: str | None,
    topic_id: bytes,
    *,
    is_repeated: bool,
    named: tuple[set[str | None], set[bytes]],
) -> tuple[DeletableTopicResult | None, Topic | None]:
    """Return the result for one requested topic, and the topic if it can be deleted. If a topic is
    requested by name and by id, the result for the name is an error, and that for the id is None.

    Args:
        named: all names and ids in the request.
    """
    answer = DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE)
    try:
        topic = _find(ctx, name, topic_id, is_repeated=is_repeated)
        if not _may(ctx, Operation.DELETE, topic.name):
            # The response to a deletion by id contains the name only if the principal may describe
            # the topic.
            if name is None and _may(ctx, Operation.DESCRIBE, topic.name):
                answer.name = topic.name
            raise denied(ResourceType.TOPIC)
        by_both = topic.name in named[0] and topic.topic_id in named[1]
        if by_both and name is None:
            return None, None
        answer.name, answer.topic_id = topic.name, topic.topic_id
        if by_both:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
        _check_allowed(ctx, topic)
        mutations.take(len(topic.partitions))
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer, None
    return answer, topic


def _may(ctx: RequestContext, operation: Operation, name: str) -> bool:
    """Whether the principal may perform `operation` on the topic, or DELETE on the cluster."""
    return ctx.sees(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME) or ctx.may(
        operation, ResourceType.TOPIC, name
    )


def _find(ctx: RequestContext, name: str | None, topic_id: bytes, *, is_repeated: bool) -> Topic:
    if name is not None and topic_id != ZERO_UUID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if name is None and topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if is_repeated:
        kind = "id" if name is None else "name"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
    if name is None:
        topic = ctx.broker.topics.get_by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        return topic
    if not _may(ctx, Operation.DESCRIBE, name):
        raise denied(ResourceType.TOPIC)
    topic = ctx.broker.topics.get(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    return topic


def _check_allowed(ctx: RequestContext, topic: Topic) -> None:
    if not ctx.broker.topics.settings.config.delete_topic_enable:
        has_code = ctx.api_version >= DELETION_DISABLED_SINCE
        raise KafkaError(
            ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST,
            "Topic deletion is disabled.",
        )
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} belongs to the broker itself."
        )
