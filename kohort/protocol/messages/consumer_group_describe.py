"""ConsumerGroupDescribe (key 69): state and members of groups of the new protocol (KIP-848).

v1 distinguishes members of the classic protocol (KIP-1099).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int8, Int16, Int32, String, Uuid


@request(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[String]
    include_authorized_operations: Bool = field(default=False)


@struct
class TopicPartitions:
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field(default=[])


@struct
class Member:
    member_id: String
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = field(default=None)
    assignment: Assignment
    target_assignment: Assignment
    """The assignment once all members have given up their revoked partitions."""
    member_type: Int8 = field(default=-1, since=1, ignorable=True)
    """0 for the classic protocol, 1 for the new one; -1 if unknown."""


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    """Empty, Assigning, Reconciling, Stable or Dead."""
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = field(default=-0x80000000)
    """Permitted operations as a bit field; the smallest int32 if not requested."""


@response(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """One entry per group, in the order of the request.

    Error codes, per group:
    - GROUP_ID_NOT_FOUND: no such group of the new protocol.
    """

    throttle_time_ms: Int32
    groups: list[DescribedGroup]
