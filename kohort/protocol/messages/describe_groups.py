"""DescribeGroups (key 15): state and members of classic groups, for operators.

v1 throttle time; v2 answers before throttling; v3 authorised operations (KIP-430); v4 instance ids
(KIP-345); v5 flexible; v6 unknown groups are an error with a message (KIP-1043).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Bytes, Int16, Int32, String


@request(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[String]
    include_authorized_operations: Bool = field(default=False, since=3)


@struct
class DescribedGroupMember:
    member_id: String
    group_instance_id: String | None = field(default=None, since=4, ignorable=True)
    client_id: String
    client_host: String
    """The address in a form like "/127.0.0.1"."""
    member_metadata: Bytes
    """Metadata for the chosen protocol; empty unless the group is Stable."""
    member_assignment: Bytes


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field(default=None, since=6)
    group_id: String
    group_state: String
    """Empty, PreparingRebalance, CompletingRebalance, Stable or Dead."""
    protocol_type: String
    protocol_data: String
    """Name of the chosen assignor; empty unless the group is Stable."""
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field(default=-0x80000000, since=3)
    """Bit field; the smallest int32 means not asked for."""


@response(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """One entry per group, in the order of the request.

    Error codes, per group:
    - GROUP_ID_NOT_FOUND (v6): no such classic group; before v6 it is state Dead without an error.
    - INVALID_GROUP_ID: the group id cannot be used.
    - NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: find the
      coordinator again, or wait.
    - GROUP_AUTHORIZATION_FAILED: the principal may not describe the group.
    """

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    groups: list[DescribedGroup]
