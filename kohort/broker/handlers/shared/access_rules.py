"""Shared by the APIs for access rules. Contains no handlers."""

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.security.rules import AccessRules
from kohort.protocol.errors import ErrorCode, KafkaError


def rules_in_force(ctx: RequestContext, operation: Operation, *, text: str) -> AccessRules:
    """Return the access rules if the principal may do this to the cluster.

    Raises:
        KafkaError: SECURITY_DISABLED with this text if there is no authorizer, or
            CLUSTER_AUTHORIZATION_FAILED.
    """
    access = ctx.broker.access
    if access is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, text)
    ctx.require(operation, ResourceType.CLUSTER)
    return access.rules
