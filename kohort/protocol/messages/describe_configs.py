"""DescribeConfigs (key 32): the configs of topics, brokers and groups, with their origin.

v1 sources and synonyms (KIP-226); v2 answers before throttling; v3 types and documentation
(KIP-569); v4 flexible. Version 0 ended with Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int8, Int16, Int32, String


@struct
class DescribeConfigsResource:
    """One topic, broker, broker logger, client-metrics subscription or group."""

    resource_type: Int8
    """2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."""
    resource_name: String
    configuration_keys: list[String] | None
    """Names of the configs, None for all of them."""


@request(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = field(default=False)
    include_documentation: Bool = field(default=False, since=3)


@struct
class DescribeConfigsSynonym:
    """A config that can supply the value; all such configs are listed in order of precedence."""

    name: String
    value: String | None
    source: Int8


@struct
class DescribeConfigsResourceResult:
    name: String
    value: String | None
    """The value, None for sensitive configs and for those without a value."""
    read_only: Bool
    config_source: Int8 = field(default=-1, ignorable=True)
    """1 topic, 2 this broker's override, 3 all brokers' override, 4 properties file, 5 default, 6
    broker logger, 7 client metrics, 8 group."""
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym] = field(ignorable=True)
    config_type: Int8 = field(default=0, since=3, ignorable=True)
    """0 unknown, 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9
    password."""
    documentation: String | None = field(default="", since=3, ignorable=True)


@struct
class DescribeConfigsResult:
    """The configs of one resource, or why it cannot be described."""

    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


@response(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """One result per resource.

    Error codes, per resource:
    - INVALID_REQUEST: an unknown resource type, or another broker's id.
    - INVALID_CONFIG: an impossible resource name.
    """

    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResult]
