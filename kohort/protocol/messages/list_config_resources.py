"""ListConfigResources (key 74): v0 client-metrics only (KIP-714); v1 any kind (KIP-1142)."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int8, Int16, Int32, String


@request(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[Int8] = field(default=[], since=1)
    """Numbers as in DescribeConfigs; empty for every kind."""


@struct
class ConfigResource:
    resource_name: String
    resource_type: Int8 = field(default=16, since=1, ignorable=True)


@response(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources of those kinds.

    Error codes:
    - UNSUPPORTED_VERSION: a kind that cannot be listed.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    config_resources: list[ConfigResource]
