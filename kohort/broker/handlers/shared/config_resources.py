"""Shared by the three config APIs: resource types, and how changes are applied.

Contains no handlers. Resources are topics, brokers and groups; the broker's loggers can be
described. There are no client-metrics subscriptions.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Final, TypeVar

from kohort.broker.core.coordinator_partitions import ID_CHARACTERS_MAX
from kohort.broker.core.security import acls
from kohort.broker.core.security.acls import Operation
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.changes import Alteration
from kohort.broker.topics.names import check_name
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from kohort.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)

CONFIGS_MAX: Final = 1_000
"""Maximum configs per resource in a request, all checked without a pause; no resource has more."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,10}")


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_TYPES: Final = frozenset(ResourceType)


def check_allowed(ctx: RequestContext, kind: int, name: str, *, operation: Operation) -> None:
    """Raise KafkaError unless the principal may describe or alter the configs of a resource."""
    if kind == ResourceType.TOPIC:
        ctx.require(operation, acls.ResourceType.TOPIC, name)
    elif kind == ResourceType.GROUP:
        ctx.require(operation, acls.ResourceType.GROUP, name)
    elif kind in _TYPES:  # Unknown types are refused before authorisation.
        ctx.require(operation, acls.ResourceType.CLUSTER)


_Resource = TypeVar("_Resource", AlterConfigsResource, IncrementalResource)


async def alter_each(
    clock: Clock,
    resources: Sequence[_Resource],
    change: Callable[[_Resource], Awaitable[None]],
) -> list[AlterConfigsResourceResponse]:
    """Alter one resource after another: each completely or, with an error in its response, not at
    all.

    A resource that is named twice is refused both times. ``change`` raises KafkaError.
    """
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    answers = []
    time_slice = Slice(clock)
    for resource in resources:
        answer = AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            if len(resource.configs) > CONFIGS_MAX:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"More than {CONFIGS_MAX} configs of one resource."
                )
            await change(resource)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
        await time_slice.pause()
    return answers


async def alter(
    ctx: RequestContext, resource: _Resource, alteration: Alteration, *, validate_only: bool
) -> None:
    """Alter the configs of a resource, or only validate the change. Raises KafkaError."""
    kind, name, changes = resource.resource_type, resource.resource_name, ctx.broker.topics.changes
    check_allowed(ctx, kind, name, operation=Operation.ALTER_CONFIGS)
    match kind:
        case ResourceType.TOPIC:
            topic = _topic(ctx, name)
            await changes.alter_topic(topic, alteration, validate_only=validate_only)
        case ResourceType.BROKER:
            if name:
                check_broker_id(ctx, name, kind="Node", expected=str(ctx.broker.node_id) + ",")
            await changes.alter_broker(name, alteration, validate_only=validate_only)
        case ResourceType.GROUP:
            if not name or len(name) > ID_CHARACTERS_MAX:
                problem = "The group id is too long."
                if not name:
                    problem = "Default group resources are not allowed."
                raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
            await changes.alter_group(name, alteration, validate_only=validate_only)
        case ResourceType.BROKER_LOGGER | ResourceType.CLIENT_METRICS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Configs of type {ResourceType(kind).name} cannot be set on this broker.",
            )
        case unknown:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown}")


def _topic(ctx: RequestContext, name: str) -> Topic:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(name)
    topic = ctx.broker.topics.get(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )
    return topic


def check_broker_id(ctx: RequestContext, name: str, *, kind: str, expected: str) -> None:
    """Raise KafkaError(INVALID_REQUEST) unless ``name`` is this broker's id."""
    if _INTEGER.fullmatch(name) is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{kind} id must be an integer, but it is: {name}"
        )
    if int(name) != ctx.broker.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {expected} but received {name}",
        )
