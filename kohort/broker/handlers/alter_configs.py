"""AlterConfigs (key 33): replace all configs of a resource by those in the request.

v0-2 as in Kafka 4.4; superseded by IncrementalAlterConfigs (KIP-339). A resource that is named
twice is refused, where Kafka 4.4 does not answer the request.
"""

from collections.abc import Mapping
from functools import partial

from kohort.broker.config.alter import replaced
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ErrorTemplate, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.config_resources import alter, alter_each
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(
    AlterConfigsRequest,
    versions="0-2",
    on_error=OnError(
        ErrorTemplate(
            response="responses", request="resources", copied=same("resource_type", "resource_name")
        )
    ),
)
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Alter each resource, completely or not at all."""

    def answer(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        return AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    change = partial(_replace, ctx, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=await alter_each(ctx.broker.clock, request.resources, answer, change)
    )


async def _replace(
    ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    configs = replaced([(config.name, config.value) for config in resource.configs])

    def alteration(current: Mapping[str, str]) -> dict[str, str]:
        del current
        return configs

    await alter(ctx, resource, alteration, validate_only=validate_only)
