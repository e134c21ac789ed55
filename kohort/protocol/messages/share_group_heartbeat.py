"""ShareGroupHeartbeat (key 76): join, stay in or leave a share group (KIP-932).

v0 was early access in Kafka 4.0; v1 is the first stable version.
"""

from kohort.protocol.message import field, request, response
from kohort.protocol.messages.consumer_group_heartbeat import Assignment
from kohort.protocol.types import Int16, Int32, String


@request(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """A null field means unchanged since the member's previous request."""

    group_id: String
    member_id: String
    """Chosen by the client, which uses it until it closes."""
    member_epoch: Int32
    """0 to join, -1 to leave."""
    rack_id: String | None = field(default=None)
    subscribed_topic_names: list[String] | None = field(default=None)


@response(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """The member's epoch, and its assignment if it has changed.

    Error codes:
    - FENCED_MEMBER_EPOCH: join again.
    - GROUP_MAX_SIZE_REACHED: the group is full.
    - GROUP_ID_NOT_FOUND: no such group, or it is not a share group.
    - INVALID_REQUEST.
    - UNSUPPORTED_VERSION: share groups are switched off.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)
    """None if it has not changed."""
