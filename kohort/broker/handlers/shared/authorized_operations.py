"""Bit fields of what a principal may do (KIP-430). Not an API of its own.

Without an authorizer every client may do everything that applies to the kind of resource, as with a
Kafka that has none.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext

_TOPIC: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_GROUP: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_CLUSTER: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def _bits(operations: tuple[Operation, ...]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(_TOPIC)
GROUP_OPERATIONS: Final = _bits(_GROUP)
CLUSTER_OPERATIONS: Final = _bits(_CLUSTER)
NOT_COMPUTED: Final = -0x80000000
"""Where the request did not ask."""


def topic_operations(ctx: RequestContext, name: str) -> int:
    """What the principal may do to a topic."""
    access = ctx.broker.access
    if access is None:
        return TOPIC_OPERATIONS
    return access.operations(ctx.session, ResourceType.TOPIC, name, _TOPIC)


def group_operations(ctx: RequestContext, group_id: str) -> int:
    """What the principal may do to a group."""
    access = ctx.broker.access
    if access is None:
        return GROUP_OPERATIONS
    return access.operations(ctx.session, ResourceType.GROUP, group_id, _GROUP)


def cluster_operations(ctx: RequestContext) -> int:
    """What the principal may do to the cluster; nothing where it may not describe it."""
    access = ctx.broker.access
    if access is None:
        return CLUSTER_OPERATIONS
    return access.cluster_operations(ctx.session, _CLUSTER)
