"""AlterClientQuotas (key 49): set and remove client quotas (KIP-546).

v0-1 as in Kafka 4.4. Entries succeed individually. All entries of a repeated entity are rejected
(Kafka applies the first of them), and so is an entry that repeats a key. IP entities must be
numeric addresses: names are not resolved.

DescribeClientQuotas (key 48): list the quotas of the entities that match a filter (KIP-546).

v0-1 as in Kafka 4.4.
"""

from collections import Counter
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.quotas import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    USER,
    Entity,
    QuotaError,
    entity_of,
)
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.access import denied
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, elements, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.slices import Slice
from kohort.broker.security.client_quotas import LimitChange, TooManyEntitiesError
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntry,
    EntityData,
    EntryData,
    EntryResult,
    ValueData,
)


@handles(
    AlterClientQuotasRequest,
    versions="0-1",
    on_error=OnError(elements("entries", "entries", same("entity"))),
)
async def alter_client_quotas(
    ctx: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Alter each entry; answered when the changes are durable and in effect."""
    is_allowed = ctx.may(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    times = Counter(_named(entry) for entry in request.entries)
    results = []
    time_slice = Slice(ctx.broker.clock)
    for entry in request.entries:
        code, text = ErrorCode.NONE, None
        try:
            if not is_allowed:
                raise denied(ResourceType.CLUSTER)
            await _alter(
                ctx,
                entry,
                is_repeated=times[_named(entry)] > 1,
                validate_only=request.validate_only,
            )
        except (QuotaError, TooManyEntitiesError) as error:
            code, text = ErrorCode.INVALID_REQUEST, str(error)
        except KafkaError as error:
            code, text = error.code, error.message
        results.append(EntryResult(error_code=code, error_message=text, entity=entry.entity))
        await time_slice.pause()
    return AlterClientQuotasResponse(entries=results)


def _named(entry: EntryData) -> frozenset[tuple[str, str | None]]:
    return frozenset(_parts(entry))


def _parts(entry: EntryData) -> list[tuple[str, str | None]]:
    """Return an entity's (type, name) pairs, but at most one more than a valid entity has."""
    return [(part.entity_type, part.entity_name) for part in entry.entity[: ENTITY_TYPES + 1]]


async def _alter(
    ctx: RequestContext, entry: EntryData, *, is_repeated: bool, validate_only: bool
) -> None:
    """Alter the quotas of one entity. Raises QuotaError or TooManyEntitiesError."""
    entity: Entity = entity_of(_parts(entry))
    if is_repeated:
        raise QuotaError("The entity is named twice in the request.")
    if len({op.key for op in entry.ops}) < len(entry.ops):
        raise QuotaError("A limit is named twice.")
    unknown = next((op.key for op in entry.ops if op.key not in entity.keys), None)
    if unknown is not None:
        raise QuotaError(f"Invalid configuration key {unknown}")
    quotas = ctx.broker.quotas
    assert quotas is not None
    changes = [LimitChange(op.key, None if op.remove else op.value) for op in entry.ops]
    await quotas.alter({entity: changes}, validate_only=validate_only)


EXACT, DEFAULT, ANY = range(3)
NO_MESSAGE: Final = ""
"""The `error_message` if there is no error: empty, as in Kafka, whose other APIs return null."""


@handles(DescribeClientQuotasRequest, versions="0-1")
def describe_client_quotas(
    ctx: RequestContext, request: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    """List quotas; a filter without components matches all entities, unless it is strict."""
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


def _entry(entity: Entity, limits: dict[str, float]) -> DescribedEntry:
    return DescribedEntry(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts()],
        values=[ValueData(key=key, value=value) for key, value in limits.items()],
    )
