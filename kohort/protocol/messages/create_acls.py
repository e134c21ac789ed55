"""CreateAcls (key 30): add rules.

v1 patterns (KIP-290); v2 flexible; v3 users as resources (KIP-373). Version 0 ended with Kafka 4.0.
Defined by KIP-140.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int8, Int16, Int32, String


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
    - SECURITY_DISABLED: there is no authorizer.
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not alter the cluster.
    - INVALID_REQUEST: the rule is invalid.
    """

    throttle_time_ms: Int32 = field(default=0)
    results: list[AclCreationResult]
