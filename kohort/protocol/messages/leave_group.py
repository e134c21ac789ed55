"""LeaveGroup (key 13): members leave at once instead of timing out.

v1 throttle time; v2 answers before throttling; v3 several members, by instance id too (KIP-345);
v4 flexible; v5 reason text (KIP-800).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, String


@struct
class MemberIdentity:
    """One leaving member."""

    member_id: String
    """Empty when an operator removes a static member by its instance id."""
    group_instance_id: String | None = field(default=None)
    reason: String | None = field(default=None, since=5, ignorable=True)


@request(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """One member up to v2, a list from v3."""

    group_id: String
    member_id: String = field(default="", until=2)
    members: list[MemberIdentity] = field(default=[], since=3)


@struct
class MemberResponse:
    member_id: String
    group_instance_id: String | None
    error_code: Int16


@response(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """Up to v2 the outcome is the top-level error, from v3 each member has its own.

    Error codes, per member (up to v2: top level):
    - FENCED_INSTANCE_ID (v3): the instance id belongs to another member id.
    """

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = field(default=[], since=3)
