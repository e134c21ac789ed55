"""Client quotas (KIP-546): AlterClientQuotas (key 49) and DescribeClientQuotas (key 48).

v1 of both flexible.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Float64, Int8, Int16, Int32, String


@struct
class EntityData:
    """One component of a quota's entity, such as a user; a null name is the type's default."""

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


@struct
class ComponentData:
    entity_type: String
    match_type: Int8
    """0 exactly this name, 1 the default, 2 any name or the default."""
    match: String | None


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """A filter; all components must match."""

    components: list[ComponentData]
    strict: Bool
    """Whether to exclude entities that have components other than these."""


@struct
class ValueData:
    key: String
    value: Float64


@struct
class DescribedEntry:
    entity: list[EntityData]
    values: list[ValueData]


@response(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The limits of the matching entities.

    Error codes:
    - INVALID_REQUEST: the filter is invalid.
    - UNSUPPORTED_VERSION: an unknown type of entity.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    entries: list[DescribedEntry] | None
