"""The requests of members of classic groups.

- JoinGroup (key 11), to become, or stay, a member of the next generation: v1 rebalance timeout
  (KIP-62); v2 throttle time; v3 answers before throttling; v4 a first join gets its member id and
  must join again (KIP-394); v5 static membership (KIP-345); v6 flexible; v7 protocol type in the
  answer (KIP-559); v8 reason text (KIP-800); v9 a returning leader is told to skip the assignment
  (KIP-814).
- SyncGroup (key 14), by which the leader sends, and members receive, the assignment: v1 throttle
  time; v2 answers before throttling; v3 static membership (KIP-345); v4 flexible; v5 protocol type
  and name in both directions (KIP-559).
- Heartbeat (key 12): v1 throttle time; v2 answers before throttling; v3 static membership
  (KIP-345); v4 flexible.
- LeaveGroup (key 13), to leave at once instead of timing out: v1 throttle time; v2 answers before
  throttling; v3 several members, by instance id too (KIP-345); v4 flexible; v5 reason text
  (KIP-800).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Bytes, Int16, Int32, LenientInt8, String


@struct
class JoinGroupRequestProtocol:
    """An assignor that the member supports, with its metadata for that assignor."""

    name: String
    metadata: Bytes
    """The member's metadata; for consumers a ConsumerProtocolSubscription."""


@request(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Answered when the join phase of the rebalance ends."""

    group_id: String
    session_timeout_ms: Int32
    """The member is dropped after this long without a heartbeat."""
    rebalance_timeout_ms: Int32 = field(default=-1, since=1, ignorable=True)
    """-1: use the session timeout, as v0 always does."""
    member_id: String
    """Empty in a first join."""
    group_instance_id: String | None = field(default=None, since=5)
    protocol_type: String
    """"consumer" for consumers; the same for all members."""
    protocols: list[JoinGroupRequestProtocol]
    """Supported assignors, in order of preference."""
    reason: String | None = field(default=None, since=8, ignorable=True)
    """Free text for people; has no effect."""
    join_reason: LenientInt8 = field(default=0, since=6, tag=7728, ignorable=True)
    """Kohort's extension, a tag that other brokers skip: why the member joins, as a number."""


@struct
class JoinGroupResponseMember:
    member_id: String
    group_instance_id: String | None = field(default=None, since=5, ignorable=True)
    metadata: Bytes


@response(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The new generation; only the leader gets the member list.

    Error codes:
    - MEMBER_ID_REQUIRED (v4): join again with the member id in the response.
    - UNKNOWN_MEMBER_ID: not a member; start over with an empty id.
    - INCONSISTENT_GROUP_PROTOCOL: other protocol type, or no assignor in common with all members.
    - INVALID_SESSION_TIMEOUT: outside the broker's group.min and group.max.session.timeout.ms.
    - GROUP_MAX_SIZE_REACHED: the group is full (group.max.size).
    - REBALANCE_IN_PROGRESS: superseded by a second join of the same member.
    """

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    """-1 with an error."""
    protocol_type: String | None = field(default=None, since=7, ignorable=True)
    protocol_name: String | None = field(nullable_since=7)
    """The protocol of the group; with an error, None from v7 and empty before."""
    leader: String
    skip_assignment: Bool = field(default=False, since=9)
    member_id: String
    members: list[JoinGroupResponseMember]
    """Empty for all members but the leader."""


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
    - ILLEGAL_GENERATION: the group has a later generation.
    - INCONSISTENT_GROUP_PROTOCOL (v5): protocol type or name missing or not the group's.
    - UNKNOWN_SERVER_ERROR: the assignment could not be stored.
    """

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16
    protocol_type: String | None = field(default=None, since=5, ignorable=True)
    protocol_name: String | None = field(default=None, since=5, ignorable=True)
    assignment: Bytes
    """Empty for a member that the leader left out."""


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
    - ILLEGAL_GENERATION: the group has a later generation, without this member.
    """

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16


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
