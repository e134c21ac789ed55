"""Metadata (key 3): brokers, topics, partitions and their leaders.

v0-13 as in Kafka 4.4. A topic that does not exist is created if the client allows it and
auto.create.topics.enable is set. Kafka then answers UNKNOWN_TOPIC_OR_PARTITION at first, because
its controller is elsewhere; here the topic is in the same response, which saves the client a
backoff. __rebalance_history, which Kafka does not have, is described only if a request names it.
"""

from functools import lru_cache
from typing import Final, TypeAlias

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import BY_NAME_OR_ID, OnError, elements
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import NO_LEADER, Mutations
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.creation import NewTopic
from kohort.broker.topics.names import CLUSTER_METADATA, INTERNAL_TOPICS, name_problem
from kohort.broker.topics.topic import Topic
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.protocol.types import ZERO_UUID

LOOKUP_BY_ID_SINCE: Final = 12
"""v10 and v11 have the topic id field, but Kafka refuses lookups by it."""
EMPTY_IS_NONE_SINCE: Final = 1
_DESCRIBE: Final = Operation.DESCRIBE
_TOPIC: Final = ResourceType.TOPIC
_NOT_ALLOWED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_Denied: TypeAlias = dict[str | bytes | None, MetadataResponseTopic]
"""Denied topics by name or id, whichever is used in the request."""
TOPICS_REMEMBERED_MAX: Final = 50
"""Responses to requests with more topics are not cached, to limit the cache's memory."""


def _prepare(ctx: RequestContext, request: MetadataRequest) -> None:
    if request.topics:
        _check_lookups(ctx, request.topics)
        request.topics = _distinct(request.topics)


@handles(
    MetadataRequest,
    versions="0-13",
    on_error=OnError(elements("topics", "topics", BY_NAME_OR_ID)),
    parts=(lists("topics"),),
    prepare=_prepare,
)
def metadata(
    ctx: RequestContext, request: MetadataRequest
) -> MetadataResponse | EncodedResponse | Deferred[MetadataResponse]:
    """Return metadata; waits only if topics are created."""
    requested = request.topics
    if requested is None or (not requested and ctx.api_version < EMPTY_IS_NONE_SINCE):
        listed = [
            _found(ctx, topic)
            for topic in ctx.broker.topics.all()
            if topic.is_listed and ctx.sees(_DESCRIBE, _TOPIC, topic.name)
        ]
        return _respond(ctx, request, listed)
    key = _cache_key(ctx, request, requested)
    known = ctx.broker.topic_answers.find(key, ctx.broker.topics)
    if known is not None:
        return known
    _check_lookups(ctx, requested)
    requested = _distinct(requested)
    denied, missing = _denied_and_missing(ctx, request, requested)

    async def create_and_respond() -> MetadataResponse:
        # As in Kafka, a topic that cannot be created, also because of the client's quota, is
        # reported as unknown. The client is not throttled for it.
        mutations = Mutations(ctx, is_strict=True)
        await ctx.broker.topics.changes.create_topics(
            [NewTopic(name=name) for name in missing], charge=mutations.take
        )
        return _respond(ctx, request, _look_up_all(ctx, requested, denied))

    if missing:
        return ctx.run(create_and_respond(), name="create topics")
    response = _respond(ctx, request, _look_up_all(ctx, requested, denied))
    return response if key is None else _cached(ctx, key, response)


def _cache_key(
    ctx: RequestContext, request: MetadataRequest, requested: list[MetadataRequestTopic]
) -> tuple[object, ...] | None:
    """Return a cache key of everything that determines the response, except the state of the
    topics; None for large requests.
    """
    if len(requested) > TOPICS_REMEMBERED_MAX:
        return None
    return (
        ctx.api_version,
        ctx.advertised,
        ctx.permissions_key,
        request.include_cluster_authorized_operations,
        request.include_topic_authorized_operations,
        *[_named(topic) for topic in requested],
    )


def _cached(
    ctx: RequestContext, key: tuple[object, ...], response: MetadataResponse
) -> MetadataResponse | EncodedResponse:
    """Cache the response for equal requests, unless it contains errors."""
    topics = []
    for described in response.topics:
        topic = ctx.broker.topics.get_by_id(described.topic_id)
        if topic is None or not topic.partitions.are_online():
            return response
        topics.append(topic)
    body = codec(MetadataResponse, ctx.api_version).encode(response)
    return ctx.broker.topic_answers.keep(key, body, topics)


def _denied_and_missing(
    ctx: RequestContext, request: MetadataRequest, requested: list[MetadataRequestTopic]
) -> tuple[_Denied, list[str]]:
    """Return the responses for topics that the principal may not describe or create, and the names
    of the topics to create.
    """
    denied: _Denied = {}
    missing: list[str] = []
    topics = ctx.broker.topics
    creates = request.allow_auto_topic_creation and topics.settings.config.auto_create_topics_enable
    for requested_topic in requested:
        name, topic_id = requested_topic.name, requested_topic.topic_id
        if topic_id != ZERO_UUID:
            topic = topics.get_by_id(topic_id)
            if topic is not None and not ctx.may(_DESCRIBE, _TOPIC, topic.name):
                denied[topic_id] = _missing(_NOT_ALLOWED, None, topic_id)
        elif name is None:
            continue
        elif not ctx.may(_DESCRIBE, _TOPIC, name):
            denied[name] = _missing(_NOT_ALLOWED, name)
            denied[name].is_internal = False
        elif creates and topics.get(name) is None:
            if not (
                ctx.sees(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
                or ctx.may(Operation.CREATE, _TOPIC, name)
            ):
                denied[name] = _missing(_NOT_ALLOWED, name)
            # Internal topics are created by the broker itself when it needs them.
            elif not name_problem(name) and name not in {*INTERNAL_TOPICS, CLUSTER_METADATA}:
                missing.append(name)
    return denied, missing


def _distinct(requested: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    seen: dict[str | bytes | None, MetadataRequestTopic] = {}
    for topic in requested:
        seen.setdefault(_named(topic), topic)
    return list(seen.values())


def _named(topic: MetadataRequestTopic) -> str | bytes | None:
    """Return the key for looking up a topic: its id, or its name if the request has no id."""
    return topic.name if topic.topic_id == ZERO_UUID else topic.topic_id


def _check_lookups(ctx: RequestContext, requested: list[MetadataRequestTopic]) -> None:
    """Raise KafkaError(INVALID_REQUEST) if this version does not support a lookup by id."""
    if ctx.api_version >= LOOKUP_BY_ID_SINCE:
        return
    if any(topic.name is None or topic.topic_id != ZERO_UUID for topic in requested):
        for topic in requested:
            topic.name = topic.name or ""  # The field is not nullable in the response.
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _look_up_all(
    ctx: RequestContext, requested: list[MetadataRequestTopic], denied: _Denied
) -> list[MetadataResponseTopic]:
    return [
        denied[_named(topic)] if _named(topic) in denied else _look_up(ctx, topic)
        for topic in requested
    ]


def _look_up(ctx: RequestContext, requested: MetadataRequestTopic) -> MetadataResponseTopic:
    if requested.topic_id != ZERO_UUID:
        topic = ctx.broker.topics.get_by_id(requested.topic_id)
        if topic is None:
            return _missing(ErrorCode.UNKNOWN_TOPIC_ID, None, requested.topic_id)
        return _found(ctx, topic)
    if requested.name is None:
        return _missing(ErrorCode.INVALID_REQUEST, "")
    topic = ctx.broker.topics.get(requested.name)
    if topic is not None:
        return _found(ctx, topic)
    if name_problem(requested.name) is not None:
        return _missing(ErrorCode.INVALID_TOPIC_EXCEPTION, requested.name)
    return _missing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, requested.name)


def _found(ctx: RequestContext, topic: Topic) -> MetadataResponseTopic:
    node_id = ctx.broker.node_id
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _describe(index, node_id, epoch, is_online=topic.partitions.is_online(index))
            for index, epoch in enumerate(topic.partitions.leader_epochs())
        ],
    )


@lru_cache(maxsize=16_384)
def _describe(
    index: int, node_id: int, leader_epoch: int, *, is_online: bool
) -> MetadataResponsePartition:
    """Return a partition's metadata, which callers must not modify: all partitions with equal
    metadata share one object. This saves nine tenths of the time of creating a response with ten
    thousand partitions.
    """
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if is_online else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=node_id if is_online else NO_LEADER,
        leader_epoch=leader_epoch,
        replica_nodes=[node_id],
        isr_nodes=[node_id],
        offline_replicas=[] if is_online else [node_id],
    )


def _missing(
    code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )


def _respond(
    ctx: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code not in {_NOT_ALLOWED, ErrorCode.UNKNOWN_TOPIC_ID}:
                topic.topic_authorized_operations = ctx.operations(_TOPIC, topic.name or "")
    broker = ctx.broker
    host, port = ctx.advertised
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id,
                host=host,
                port=port,
                rack=broker.config.broker_rack,
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ctx.operations(ResourceType.CLUSTER)
    return response
