"""Heartbeat (key 12): v1 throttle time; v2 throttles later; v3 static (KIP-345); v4 flexible."""

from kohort.protocol.message import field, request, response
from kohort.protocol.types import Int16, Int32, String


@request(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Sent every heartbeat.interval.ms by each member."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(default=None, since=3)


@response(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """Whether the member may continue.

    Error codes:
    - REBALANCE_IN_PROGRESS: join again; the session was renewed.
    - ILLEGAL_GENERATION: the group has moved on without this member.
    """

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16
