"""DescribeConfigs (key 32): the configs of topics, brokers and groups, with their source.

v1-4 as in Kafka 4.4. If a config has no effect here, its documentation field says so.
"""

import logging
from collections.abc import Iterable
from typing import Final, TypeAlias

from kohort.broker.config.current import ConfigEntry, ConfigSource
from kohort.broker.core.security.acls import Operation
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, elements, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import check_repeats
from kohort.broker.handlers.shared.config_resources import (
    ResourceType,
    check_allowed,
    check_broker_id,
)
from kohort.broker.topics.names import check_name
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_TYPES: Final = frozenset(ResourceType)

NO_MESSAGE: Final = ""
"""The `error_message` if there is no error: empty, as in Kafka, whose other APIs return null."""


@handles(
    DescribeConfigsRequest,
    versions="1-4",
    on_error=OnError(elements("results", "resources", same("resource_type", "resource_name"))),
)
def describe_configs(
    ctx: RequestContext, request: DescribeConfigsRequest
) -> Steps[DescribeConfigsResponse]:
    """Describe each resource. As in Kafka, an unknown resource type fails the whole request."""
    for resource in request.resources:
        if resource.resource_type not in _TYPES:
            message = f"Unknown resource type {resource.resource_type}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    check_repeats(
        (resource.resource_type, resource.resource_name) for resource in request.resources
    )
    results, known = [], _Described()
    for resource in request.resources:
        results.append(_describe(ctx, request, resource, known))
        yield
    return DescribeConfigsResponse(results=results)


_Described: TypeAlias = dict[object, list[DescribeConfigsResourceResult]]
"""Descriptions created for this request, by the key of `_alike`; shared, because nearly all topics
have equal configs."""


def _describe(
    ctx: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    known: _Described,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=NO_MESSAGE,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    wanted = set(resource.configuration_keys or ())
    try:
        check_allowed(
            ctx,
            resource.resource_type,
            resource.resource_name,
            operation=Operation.DESCRIBE_CONFIGS,
        )
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            loggers = _loggers(ctx, resource.resource_name)
            result.configs = [logger for logger in loggers if not wanted or logger.name in wanted]
        else:
            alike = _alike(ctx, resource)
            entries = _entries(ctx, resource)
            if alike not in known:
                known[alike] = [
                    _shown(entry, request)
                    for entry in entries
                    if not wanted or entry.name in wanted
                ]
            result.configs = known[alike]
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or NO_MESSAGE
    return result


def _alike(ctx: RequestContext, resource: DescribeConfigsResource) -> object:
    """Return a key: resources of one request whose keys are equal have the same description."""
    topic = None
    if resource.resource_type == ResourceType.TOPIC:
        topic = ctx.broker.topics.get(resource.resource_name)
    name = resource.resource_name if topic is None else tuple(sorted(topic.overrides.items()))
    keys = resource.configuration_keys
    return resource.resource_type, name, None if keys is None else tuple(keys)


def _entries(ctx: RequestContext, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    name, settings = resource.resource_name, ctx.broker.topics.settings
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_name(name)
            topic = ctx.broker.topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return settings.describe_topic(topic.overrides)
        case ResourceType.BROKER if name == "":
            return settings.describe_all_brokers()
        case ResourceType.BROKER:
            expected = f"{ctx.broker.node_id} or empty string,"
            check_broker_id(ctx, name, kind="Broker", expected=expected)
            return settings.describe_broker()
        case ResourceType.GROUP if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        case ResourceType.GROUP:
            return settings.describe_group(name)
        case _:
            # Client metrics are not supported.
            return ()


def _loggers(ctx: RequestContext, name: str) -> list[DescribeConfigsResourceResult]:
    check_broker_id(ctx, name, kind="Broker", expected=str(ctx.broker.node_id))
    level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
    return [
        DescribeConfigsResourceResult(
            name="root",
            value=level,
            read_only=True,
            config_source=ConfigSource.BROKER_LOGGER,
            is_sensitive=False,
            synonyms=[],
        )
    ]


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.is_sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(
                name=synonym.name,
                value=None if entry.is_sensitive else synonym.value,
                source=synonym.source,
            )
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
