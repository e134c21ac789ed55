"""Groups for operators: DescribeGroups (key 15), ListGroups (16) and DeleteGroups (42, KIP-229).

DescribeGroups, of classic groups: v1 throttle time; v2 answers before throttling; v3 authorised
operations (KIP-430); v4 instance ids (KIP-345); v5 flexible; v6 unknown groups are an error with a
message (KIP-1043).
ListGroups: v1 throttle time; v2 answers before throttling; v3 flexible; v4 filter by state
(KIP-518); v5 filter by type (KIP-848).
DeleteGroups: v1 answers before throttling; v2 flexible; v3 error text.
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
    """Permitted operations as a bit field; the smallest int32 if not requested."""


@response(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """One entry per group, in the order of the request.

    Error codes, per group:
    - GROUP_ID_NOT_FOUND (v6): no such classic group; before v6 it is state Dead without an error.
    """

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    groups: list[DescribedGroup]


@request(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """Filters; an empty one matches every group."""

    states_filter: list[String] = field(default=[], since=4)
    """Names in any case; an unknown name matches nothing."""
    types_filter: list[String] = field(default=[], since=5)
    """Names in any case; an unknown name matches nothing."""


@struct
class ListedGroup:
    group_id: String
    protocol_type: String
    """Empty for a group that only stores offsets."""
    group_state: String = field(default="", since=4, ignorable=True)
    group_type: String = field(default="", since=5, ignorable=True)


@response(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """All groups that pass the filters.

    Error codes: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: groups are still being
    read from disk. A principal that may not describe a group does not see it, without an error.
    """

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]


@request(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[String]


@struct
class DeletableGroupResult:
    group_id: String
    error_code: Int16
    error_message: String | None = field(default=None, since=3, ignorable=True)


@response(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    """One outcome per group; an id given twice is answered once.

    Error codes, per group:
    - NON_EMPTY_GROUP: it has members.
    - GROUP_DELETION_FAILED (v3): something else that belongs to the group could not be deleted;
      the message says what.
    """

    throttle_time_ms: Int32 = field(default=0)
    results: list[DeletableGroupResult]
