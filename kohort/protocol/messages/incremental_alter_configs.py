"""IncrementalAlterConfigs (key 44): change single overrides. v1 flexible. KIP-339."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.messages.alter_configs import AlterConfigsResourceResponse
from kohort.protocol.types import Bool, Int8, Int32, String


@struct
class AlterableConfig:
    name: String
    config_operation: Int8
    """0 set, 1 delete (back to the default), 2 append to a list, 3 subtract from it."""
    value: String | None
    """Ignored when deleting."""


@struct
class AlterConfigsResource:
    resource_type: Int8
    """2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."""
    resource_name: String
    configs: list[AlterableConfig]


@request(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: Bool


@response(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """One outcome per resource; a resource changes completely or not at all.

    Error codes, per resource:
    - INVALID_CONFIG: an unknown config, an invalid value, or a list operation on a config that is
      no list.
    - INVALID_REQUEST: a resource or a config twice, an unknown type or operation, or a config that
      cannot change while running.
    - NOT_CONTROLLER, REQUEST_TIMED_OUT: the controller could not be asked in time.
    """

    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]
