"""AlterConfigs (key 33): replace the overrides of topics and brokers as a whole.

v1 answers before throttling; v2 flexible. Configs that the request omits return to their defaults,
so that two writers undo each other's changes: IncrementalAlterConfigs is the replacement (KIP-339).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int8, Int16, Int32, String


@struct
class AlterableConfig:
    name: String
    value: String | None


@struct
class AlterConfigsResource:
    resource_type: Int8
    """2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."""
    resource_name: String
    configs: list[AlterableConfig]


@request(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: Bool


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String


@response(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """One outcome per resource; a resource changes completely or not at all.

    Error codes, per resource:
    - INVALID_CONFIG: an unknown config, or an invalid value.
    - INVALID_REQUEST: a resource or a config twice, an unknown type, or a config that cannot
      change while running.
    - NOT_CONTROLLER, REQUEST_TIMED_OUT: the controller could not be asked in time.
    """

    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]
