"""DescribeClientQuotas (key 48): limits on clients' use. v1 flexible. KIP-546."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Float64, Int8, Int16, Int32, String


@struct
class ComponentData:
    entity_type: String
    match_type: Int8
    """0 exactly this name, 1 the default, 2 any name or the default."""
    match: String | None


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """A filter; all parts must match."""

    components: list[ComponentData]
    strict: Bool
    """Whether entities with further parts are left out."""


@struct
class EntityData:
    entity_type: String
    entity_name: String | None


@struct
class ValueData:
    key: String
    value: Float64


@struct
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@response(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The limits that the filter finds.

    Error codes:
    - INVALID_REQUEST: the filter is invalid.
    - UNSUPPORTED_VERSION: an unknown type of entity.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    entries: list[EntryData] | None
