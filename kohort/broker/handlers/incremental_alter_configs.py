"""IncrementalAlterConfigs (key 44): change single configs and keep the others (KIP-339).

v0-1 as in Kafka 4.4.
"""

from collections.abc import Mapping
from functools import partial

from kohort.broker.config.alter import Change, altered
from kohort.broker.config.current import all_broker_settings
from kohort.broker.config.topic import TOPIC_SETTINGS, broker_default
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ErrorTemplate, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.config_resources import ResourceType, alter, alter_each
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handles(
    IncrementalAlterConfigsRequest,
    versions="0-1",
    on_error=OnError(
        ErrorTemplate(
            response="responses", request="resources", copied=same("resource_type", "resource_name")
        )
    ),
)
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Alter each resource, completely or not at all."""

    def answer(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        return AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    change = partial(_change, ctx, validate_only=request.validate_only)
    responses = await alter_each(ctx.broker.clock, request.resources, answer, change)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _change(
    ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    changes = [
        Change(config.name, config.config_operation, config.value) for config in resource.configs
    ]
    is_topic = resource.resource_type == ResourceType.TOPIC
    known = TOPIC_SETTINGS if is_topic else all_broker_settings()
    if resource.resource_type == ResourceType.GROUP:
        known = {}  # No config of these resources is a list.

    def default(name: str) -> str:
        settings, setting = ctx.broker.topics.settings, known[name]
        value = broker_default(setting, settings.config) if is_topic else settings.value_of(name)
        return setting.format(value) or ""

    def alteration(current: Mapping[str, str]) -> dict[str, str]:
        return altered(current, changes, known, default)

    await alter(ctx, resource, alteration, validate_only=validate_only)
