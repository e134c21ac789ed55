"""DescribeClientQuotas (key 48): list the limits of the entities that match a filter (KIP-546).

v0-1 as in Kafka 4.4.
"""

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.quotas import CLIENT_ID, IP, USER, Entity
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, ANY = range(3)
NO_MESSAGE: Final = ""
"""Used by Kafka where the other APIs have null."""


@handles(DescribeClientQuotasRequest, versions="0-1")
def describe_client_quotas(
    ctx: RequestContext, request: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    """List limits; a filter without components matches all entities, unless it is strict."""
    quotas = ctx.broker.quotas
    assert quotas is not None
    try:
        ctx.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    entries = []
    for entity, limits in list(quotas.quotas.limits.items()):
        if _is_found(entity, request):
            entries.append(_entry(entity, limits))
        yield
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE, error_message=NO_MESSAGE, entries=entries
    )


def _check(components: list[ComponentData]) -> None:
    """Raise KafkaError for an invalid filter."""
    types = [component.entity_type for component in components]
    for component in components:
        if component.entity_type == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component type")
        if component.entity_type not in {USER, CLIENT_ID, IP}:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{component.entity_type}'"
            )
        if component.match_type not in {EXACT, DEFAULT, ANY}:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected match type {component.match_type}"
            )
        if (component.match is None) is (component.match_type == EXACT):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Only an exact match has a name, and requires it"
            )
    if len(set(types)) < len(types) or (IP in types and len(types) > 1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid combination of entity types")


def _is_found(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    parts = dict(entity.parts())
    for component in request.components:
        if component.entity_type not in parts:
            return False
        name = parts.pop(component.entity_type)
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return not (request.strict and parts)


def _entry(entity: Entity, limits: dict[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts()],
        values=[ValueData(key=key, value=value) for key, value in limits.items()],
    )
