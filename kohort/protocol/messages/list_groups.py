"""ListGroups (key 16): the groups that this broker coordinates.

v1 throttle time; v2 answers before throttling; v3 flexible; v4 filter by state (KIP-518); v5
filter by type (KIP-848).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, String


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
