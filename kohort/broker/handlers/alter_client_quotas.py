"""AlterClientQuotas (key 49): set and remove limits on clients (KIP-546).

v0-1 as in Kafka 4.4. Entries succeed individually. An entity or a key that is named twice is
refused everywhere; Kafka applies the first one. IP entities must be numeric addresses: names are
not resolved.
"""

from collections import Counter

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.core.security.quotas import ENTITY_TYPES, Entity, QuotaError, entity_of
from kohort.broker.dispatch.access import TEXTS
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ErrorTemplate, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.slices import Slice
from kohort.broker.security.client_quotas import LimitChange, TooManyEntitiesError
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
)


@handles(
    AlterClientQuotasRequest,
    versions="0-1",
    on_error=OnError(ErrorTemplate(response="entries", request="entries", copied=same("entity"))),
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
                raise KafkaError(
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TEXTS[ResourceType.CLUSTER]
                )
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
    """Return as many parts as can be valid: a type cannot be named twice."""
    return [(part.entity_type, part.entity_name) for part in entry.entity[: ENTITY_TYPES + 1]]


async def _alter(
    ctx: RequestContext, entry: EntryData, *, is_repeated: bool, validate_only: bool
) -> None:
    """Raises QuotaError or TooManyEntitiesError."""
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
