"""SyncGroup (key 14): the leader sends the assignment, every member gets its part.

v1 throttle time; v2 answers before throttling; v3 static membership (KIP-345); v4 flexible; v5
protocol type and name in both directions (KIP-559).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bytes, Int16, Int32, String


@struct
class SyncGroupRequestAssignment:
    member_id: String
    assignment: Bytes
    """The member's assignment; for consumers a ConsumerProtocolAssignment."""


@request(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Answered when the leader's assignment has arrived and is stored."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(default=None, since=3)
    protocol_type: String | None = field(default=None, since=5, ignorable=True)
    """Mandatory from v5 on, although it may be None on the wire."""
    protocol_name: String | None = field(default=None, since=5, ignorable=True)
    """Mandatory from v5 on, although it may be None on the wire."""
    assignments: list[SyncGroupRequestAssignment]
    """Only the leader's are used."""


@response(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The assignment of the requesting member.

    Error codes:
    - REBALANCE_IN_PROGRESS: another rebalance has begun; join again.
    - ILLEGAL_GENERATION: the group has moved on.
    - INCONSISTENT_GROUP_PROTOCOL (v5): protocol type or name missing or not the group's.
    - UNKNOWN_SERVER_ERROR: the assignment could not be stored.
    """

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16
    protocol_type: String | None = field(default=None, since=5, ignorable=True)
    protocol_name: String | None = field(default=None, since=5, ignorable=True)
    assignment: Bytes
    """Empty for a member that the leader left out."""
