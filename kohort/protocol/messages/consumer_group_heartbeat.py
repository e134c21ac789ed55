"""ConsumerGroupHeartbeat (key 68): join, stay in or leave a consumer group (KIP-848).

A request renews the session, and reports the member's subscription and partitions. v1 adds
regular expressions that the broker matches, and member ids chosen by the client (KIP-1082).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, LenientInt8, String, Uuid


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@request(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """A null field, or a timeout of -1, means unchanged since the member's previous request."""

    group_id: String
    member_id: String
    """Empty in the first request of v0, which is answered with an id."""
    member_epoch: Int32
    """0 to join, -1 to leave, -2 if a static member leaves and will be back."""
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    """How long the member may take to give up partitions."""
    subscribed_topic_names: list[String] | None = field(default=None)
    subscribed_topic_regex: String | None = field(default=None, since=1)
    """An RE2 expression; empty for none."""
    server_assignor: String | None = field(default=None)
    topic_partitions: list[TopicPartitions] | None = field(default=None)
    """The partitions that the member owns."""
    join_reason: LenientInt8 = field(default=0, tag=7728, ignorable=True)
    """Kohort's extension, a tag that other brokers skip: why the member joins, as a number."""
    reason: String | None = field(default=None, tag=7729, ignorable=True)
    """Kohort's extension: free text for people; has no effect."""


@struct
class Assignment:
    """The partitions that the member may use."""

    topic_partitions: list[TopicPartitions]


@response(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment if it has changed.

    Error codes:
    - FENCED_MEMBER_EPOCH: give up all partitions and join again.
    - UNRELEASED_INSTANCE_ID: another process has the instance id.
    - GROUP_MAX_SIZE_REACHED: the group is full.
    - GROUP_ID_NOT_FOUND: no such group, or it has another protocol.
    - UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, INVALID_REQUEST.
    - UNSUPPORTED_VERSION: consumer groups are switched off.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)
    """None if it has not changed."""
