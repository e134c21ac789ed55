"""ShareGroupDescribe (key 77): state and members of share groups (KIP-932).

v0 was early access in Kafka 4.0; v1 is the first stable version.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.messages.consumer_group_describe import Assignment
from kohort.protocol.types import Bool, Int16, Int32, String


@request(key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[String]
    include_authorized_operations: Bool = field(default=False)


@struct
class Member:
    member_id: String
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    assignment: Assignment


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    """Empty, Stable or Dead."""
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = field(default=-0x80000000)
    """Permitted operations as a bit field; the smallest int32 if not requested."""


@response(key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    """One entry per group, in the order of the request.

    Error codes, per group:
    - GROUP_ID_NOT_FOUND: no such share group.
    """

    throttle_time_ms: Int32
    groups: list[DescribedGroup]
