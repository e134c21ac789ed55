"""Bit fields of authorised operations (KIP-430). Contains no handlers.

Without an authorizer every client may perform every operation that applies to the type of resource,
as with Kafka.
"""

from typing import Final

from kohort.broker.core.security.acls import OPERATIONS, ResourceType
from kohort.broker.dispatch.context import RequestContext


def _bits(kind: ResourceType) -> int:
    return sum(1 << operation for operation in OPERATIONS[kind])


TOPIC_OPERATIONS: Final = _bits(ResourceType.TOPIC)
GROUP_OPERATIONS: Final = _bits(ResourceType.GROUP)
CLUSTER_OPERATIONS: Final = _bits(ResourceType.CLUSTER)
NOT_COMPUTED: Final = -0x80000000
"""The value if the request does not ask for it."""


def topic_operations(ctx: RequestContext, name: str) -> int:
    access = ctx.broker.access
    if access is None:
        return TOPIC_OPERATIONS
    return access.operations(ctx.session, ResourceType.TOPIC, name, OPERATIONS[ResourceType.TOPIC])


def group_operations(ctx: RequestContext, group_id: str) -> int:
    access = ctx.broker.access
    if access is None:
        return GROUP_OPERATIONS
    return access.operations(
        ctx.session, ResourceType.GROUP, group_id, OPERATIONS[ResourceType.GROUP]
    )


def cluster_operations(ctx: RequestContext) -> int:
    """The permitted operations on the cluster; none if it may not be described."""
    access = ctx.broker.access
    if access is None:
        return CLUSTER_OPERATIONS
    return access.cluster_operations(ctx.session, OPERATIONS[ResourceType.CLUSTER])
