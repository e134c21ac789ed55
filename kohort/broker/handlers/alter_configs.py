"""AlterConfigs (key 33): replace all configs of a resource by those in the request.

v0-2 as in Kafka 4.4; superseded by IncrementalAlterConfigs (KIP-339). A resource that is named
twice is refused, where Kafka 4.4 does not answer the request.

IncrementalAlterConfigs (key 44): change single configs and keep the others (KIP-339).

v0-1 as in Kafka 4.4.

ListConfigResources (key 74): the resources that DescribeConfigs supports.

v0-1 as in Kafka 4.4: the topics that Metadata lists, this broker and its loggers, and groups that
have configs. v0, which lists only client-metrics subscriptions, returns an empty list here.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from kohort.broker.config.current import all_broker_settings
from kohort.broker.config.settings import ConfigType, Setting
from kohort.broker.config.topic import TOPIC_SETTINGS, broker_default
from kohort.broker.core.security import acls
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, elements, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.config_resources import ResourceType, alter, alter_each
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from kohort.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from kohort.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kohort.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


class Operation(IntEnum):
    """Operation on a config, with the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    name: str
    operation: int
    value: str | None

    def __repr__(self) -> str:
        # Omits the value, which may be a secret.
        return f"Change({self.name!r}, {self.operation})"


def replaced(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return the configs after AlterConfigs, which replaces all of them. Raises KafkaError."""
    return altered({}, [Change(name, Operation.SET, value) for name, value in configs], {}, str)


def altered(
    current: Mapping[str, str],
    changes: list[Change],
    settings: Mapping[str, Setting],
    default: Callable[[str], str],
) -> dict[str, str]:
    """Return the configs after the changes.

    ``default`` returns the default of a list config, which APPEND and SUBTRACT change if the config
    is not set. Raises KafkaError with INVALID_REQUEST, or INVALID_CONFIG if APPEND or SUBTRACT is
    applied to a config of another type.
    """
    if len({change.name for change in changes}) < len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    result = dict(current)
    for change in changes:
        if change.operation == Operation.DELETE:
            result.pop(change.name, None)
            continue
        if change.value is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}"
            )
        match change.operation:
            case Operation.SET:
                result[change.name] = change.value
            case Operation.APPEND | Operation.SUBTRACT:
                _check_list(change, settings)
                before = result.get(change.name)
                items = _items(default(change.name) if before is None else before)
                result[change.name] = ",".join(_combined(items, _items(change.value), change))
            case unknown:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {unknown}")
    return result


def _combined(before: list[str], items: list[str], change: Change) -> list[str]:
    if change.operation == Operation.APPEND:
        return [*before, *(item for item in items if item not in before)]
    return [item for item in before if item not in items]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_list(change: Change, settings: Mapping[str, Setting]) -> None:
    known = settings.get(change.name)
    if known is None or known.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {Operation(change.operation).name} to key {change.name} because its type is"
            " not LIST.",
        )


@handles(
    AlterConfigsRequest,
    versions="0-2",
    on_error=OnError(elements("responses", "resources", same("resource_type", "resource_name"))),
)
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Alter each resource, completely or not at all."""
    change = partial(_replace, ctx, validate_only=request.validate_only)
    responses = await alter_each(ctx.broker.clock, request.resources, change)
    return AlterConfigsResponse(responses=responses)


async def _replace(
    ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    configs = replaced([(config.name, config.value) for config in resource.configs])
    await alter(ctx, resource, lambda _: configs, validate_only=validate_only)


@handles(
    IncrementalAlterConfigsRequest,
    versions="0-1",
    on_error=OnError(elements("responses", "resources", same("resource_type", "resource_name"))),
)
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Alter each resource, completely or not at all."""
    change = partial(_change, ctx, validate_only=request.validate_only)
    responses = await alter_each(ctx.broker.clock, request.resources, change)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _change(
    ctx: RequestContext, resource: IncrementalResource, *, validate_only: bool
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


@handles(ListConfigResourcesRequest, versions="0-1")
def list_config_resources(
    ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources of the requested types, of all types if none is given."""
    ctx.require(acls.Operation.DESCRIBE_CONFIGS, acls.ResourceType.CLUSTER)
    if ctx.api_version == 0:
        return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=[])
    every = set(ResourceType)
    wanted = set(request.resource_types) or every
    if not wanted <= every:
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    broker = str(ctx.broker.node_id)
    names = {
        ResourceType.BROKER_LOGGER: [broker],
        ResourceType.BROKER: [broker],
        ResourceType.TOPIC: [topic.name for topic in ctx.broker.topics.all() if topic.is_listed],
        ResourceType.GROUP: list(ctx.broker.topics.settings.groups),
    }
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, of_kind in names.items()
            if kind in wanted
            for name in of_kind
        ],
    )
