"""CreateTopics (key 19): create topics; each succeeds or fails individually.

v2-7 as in Kafka 4.4. There is one broker: a replication factor above 1, and manual assignments to
other brokers, are refused as by a one-broker Kafka cluster. The topic exists when the response
arrives. The request's timeout is ignored, but a negative timeout fails, as in Kafka. Unlike in
Kafka, clients cannot create __consumer_offsets: the broker does, at the first FindCoordinator.

CreatePartitions (key 37): increase the partition count of topics.

v0-3 as in Kafka 4.4. The request's timeout is ignored, but a negative timeout fails, as in Kafka.
The partition count of an internal topic is fixed, because it determines where a group's offsets
are.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from kohort.broker.config.current import ConfigEntry, ConfigSource
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, elements, same
from kohort.broker.dispatch.long_requests import run_in_slices
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import Mutations
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.changes import PlannedTopic
from kohort.broker.topics.creation import PARTITIONS_PER_REQUEST_MAX, NewTopic, check_expansion
from kohort.broker.topics.names import CLUSTER_METADATA, INTERNAL_TOPICS
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.topic_changes import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

REPLICATION_FACTOR: Final = 1
STRICT_SINCE: Final = 6
"""The first version whose clients handle the error THROTTLING_QUOTA_EXCEEDED."""


@handles(
    CreateTopicsRequest,
    versions="2-7",
    on_error=OnError(elements("topics", "topics", same("name"))),
)
async def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, or only validate the request; one result per topic."""
    outcomes: dict[str, CreatableTopicResult] = {}
    wanted: list[NewTopic] = []
    times = Counter(topic.name for topic in request.topics)
    may_all = ctx.sees(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    partitions = sum(
        max(topic.num_partitions, len(topic.assignments), 0) for topic in request.topics
    )
    too_many = partitions > PARTITIONS_PER_REQUEST_MAX
    time_slice = Slice(ctx.broker.clock)
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if topic.name == CLUSTER_METADATA:
                raise _prohibited(topic.name)
            if not may_all and not ctx.may(Operation.CREATE, ResourceType.TOPIC, topic.name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            if request.timeout_ms < 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            if too_many:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    "Excessively large number of partitions per request.",
                )
            wanted.append(_wanted(topic))
        except KafkaError as error:
            outcomes[topic.name] = _failed(topic.name, error)
        await time_slice.pause()
    mutations = Mutations(ctx, is_strict=ctx.api_version >= STRICT_SINCE)
    planned = await ctx.broker.topics.changes.create_topics(
        wanted, validate_only=request.validate_only, charge=mutations.take
    )
    await run_in_slices(ctx, _describe(ctx, wanted, planned, outcomes))
    return CreateTopicsResponse(
        throttle_time_ms=mutations.throttle_ms, topics=[outcomes[name] for name in times]
    )


def _describe(
    ctx: RequestContext,
    wanted: Sequence[NewTopic],
    planned: Sequence[PlannedTopic | KafkaError],
    outcomes: dict[str, CreatableTopicResult],
) -> Steps[None]:
    known = _Described(ctx)
    for new, outcome in zip(wanted, planned, strict=True):
        if isinstance(outcome, KafkaError):
            outcomes[new.name] = _failed(new.name, outcome)
        else:
            outcomes[new.name] = _created(ctx, outcome, known)
        yield


def _wanted(topic: CreatableTopic) -> NewTopic:
    if topic.name in INTERNAL_TOPICS:
        raise _prohibited(topic.name)
    configs = {}
    for config in topic.configs:
        if config.value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {config.name}",
            )
        configs[config.name] = config.value
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            (assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments
        ],
        configs=configs,
    )


def _prohibited(name: str) -> KafkaError:
    text = f"Creation of internal topic {name} is prohibited."
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


class _Described:
    """Descriptions of configs. Consecutive topics with the same overrides share one list, and all
    topics share the objects of equal configs. Otherwise a request that creates 9,000 topics would
    create 360,000 objects, and free all of them in one step.
    """

    def __init__(self, ctx: RequestContext) -> None:
        self._settings = ctx.broker.topics.settings
        self._overrides: Mapping[str, str] | None = None
        self._configs: list[CreatableTopicConfigs] = []
        self._known: dict[tuple[str, str | None, ConfigSource], CreatableTopicConfigs] = {}

    def configs(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        if overrides != self._overrides:
            self._overrides = overrides
            self._configs = [
                self._config(entry) for entry in self._settings.describe_topic(overrides)
            ]
        return self._configs

    def _config(self, entry: ConfigEntry) -> CreatableTopicConfigs:
        key = entry.name, entry.value, entry.source
        config = self._known.get(key)
        if config is None:
            config = self._known[key] = CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
        return config


def _created(ctx: RequestContext, topic: PlannedTopic, known: _Described) -> CreatableTopicResult:
    if not ctx.sees(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
            configs=[],
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=topic.partition_count,
        replication_factor=REPLICATION_FACTOR,
        configs=known.configs(topic.overrides),
    )


PARTITIONS_STRICT_SINCE: Final = 3
"""The first version whose clients handle the error THROTTLING_QUOTA_EXCEEDED."""


@handles(
    CreatePartitionsRequest,
    versions="0-3",
    on_error=OnError(elements("results", "topics", same("name"))),
)
async def create_partitions(
    ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    mutations = Mutations(ctx, is_strict=ctx.api_version >= PARTITIONS_STRICT_SINCE)
    results = {}
    time_slice = Slice(ctx.broker.clock)
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE)
        results[topic.name] = result
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not ctx.may(Operation.ALTER, ResourceType.TOPIC, topic.name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if request.timeout_ms < 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            await _enlarge(ctx, mutations, topic, validate_only=request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        await time_slice.pause()
    return CreatePartitionsResponse(
        throttle_time_ms=mutations.throttle_ms, results=list(results.values())
    )


async def _enlarge(
    ctx: RequestContext,
    mutations: Mutations,
    requested: CreatePartitionsTopic,
    *,
    validate_only: bool,
) -> None:
    topic = ctx.broker.topics.get(requested.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} belongs to the broker itself."
        )
    assignments = requested.assignments
    check_expansion(
        topic.name,
        len(topic.partitions),
        requested.count,
        None if assignments is None else [assignment.broker_ids for assignment in assignments],
        ctx.broker.node_id,
    )
    mutations.take(requested.count - len(topic.partitions))
    await ctx.broker.topics.changes.create_partitions(
        topic, requested.count, validate_only=validate_only
    )
