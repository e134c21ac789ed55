"""DescribeAcls (key 29): the rules that a filter matches.

v1 patterns (KIP-290); v2 flexible; v3 users as resources (KIP-373). Version 0 ended with Kafka 4.0.
Defined by KIP-140.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int8, Int16, Int32, String


@request(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """A filter; a name that is None matches every name, the number 1 every kind."""

    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@struct
class AclDescription:
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DescribeAclsResource:
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    acls: list[AclDescription]


@response(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """The rules, by resource.

    Error codes:
    - SECURITY_DISABLED: there is no authorizer.
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not describe the cluster.
    - INVALID_REQUEST: a number without a meaning.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    resources: list[DescribeAclsResource]
