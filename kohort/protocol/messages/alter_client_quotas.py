"""AlterClientQuotas (key 49): set and remove clients' limits. v1 flexible. KIP-546."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Float64, Int16, Int32, String


@struct
class EntityData:
    """One part of an entity; without a name the default of its type."""

    entity_type: String
    entity_name: String | None


@struct
class OpData:
    key: String
    value: Float64
    remove: Bool


@struct
class EntryData:
    entity: list[EntityData]
    ops: list[OpData]


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Changes; each entity on its own."""

    entries: list[EntryData]
    validate_only: Bool


@struct
class EntryResult:
    error_code: Int16
    error_message: String | None
    entity: list[EntityData]


@response(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """One outcome per entry, in the order of the request.

    Error codes:
    - INVALID_REQUEST: the entity or a limit is invalid.
    """

    throttle_time_ms: Int32 = field(default=0)
    entries: list[EntryResult]
