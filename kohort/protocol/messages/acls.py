"""Access rules (KIP-140): DescribeAcls (key 29), CreateAcls (30) and DeleteAcls (31).

v1 patterns (KIP-290); v2 flexible; v3 users as resources (KIP-373). Version 0 ended with Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int8, Int16, Int32, String


@request(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """A filter; a null name matches every name, and 1 (ANY) every type."""

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
    """The matching rules, by resource.

    Error codes:
    - INVALID_REQUEST: an unknown type, operation or permission.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    resources: list[DescribeAclsResource]


@struct
class AclCreation:
    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@request(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation]


@struct
class AclCreationResult:
    error_code: Int16
    error_message: String | None


@response(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """One outcome per rule, in the order of the request.

    Error codes:
    - INVALID_REQUEST: the rule is invalid.
    """

    throttle_time_ms: Int32 = field(default=0)
    results: list[AclCreationResult]


@struct
class DeleteAclsFilter:
    """A filter; a null name matches every name, and 1 (ANY) every type."""

    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@request(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    """Filters of the rules to remove."""

    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsMatchingAcl:
    """One rule that a filter matched."""

    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DeleteAclsFilterResult:
    error_code: Int16
    error_message: String | None
    matching_acls: list[DeleteAclsMatchingAcl]


@response(key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """One outcome per filter, in the order of the request."""

    throttle_time_ms: Int32 = field(default=0)
    filter_results: list[DeleteAclsFilterResult]
