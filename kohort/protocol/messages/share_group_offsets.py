"""DescribeShareGroupOffsets (key 90), AlterShareGroupOffsets (91) and DeleteShareGroupOffsets (92):
where share groups begin to deliver (KIP-932). DescribeShareGroupOffsets v1 has the lag (KIP-1226).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, Int64, String, Uuid


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: String
    partitions: list[Int32]


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: String
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None
    """None for all of the group's partitions."""


@request(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32
    start_offset: Int64
    """The first offset whose delivery is not complete; -1 if unknown."""
    leader_epoch: Int32
    lag: Int64 = field(default=-1, since=1, ignorable=True)
    """Number of offsets whose delivery is not complete; -1 if unknown."""
    error_code: Int16
    error_message: String | None = field(default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: String
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: String
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: String | None = field(default=None)


@response(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """One entry per group; an unknown group has no topics and no error."""

    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup]


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32
    start_offset: Int64
    """-1: as the group's `share.auto.offset.reset` says."""


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: String
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@request(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: String
    topics: list[AlterShareGroupOffsetsRequestTopic]


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: String
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


@response(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """One outcome per partition, none if the top level has an error.

    Error codes, top level:
    - NON_EMPTY_GROUP: it has members.
    - GROUP_ID_NOT_FOUND: it is not a share group. A group that does not exist is created.

    Error codes, per partition:
    - INVALID_REQUEST: an offset below -1.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None = field(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic]


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: String


@request(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: String
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: String
    topic_id: Uuid
    error_code: Int16
    error_message: String | None = field(default=None)


@response(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """One outcome per topic, none if the top level has an error.

    Error codes, top level:
    - NON_EMPTY_GROUP: it has members.

    Error codes, per topic:
    - UNKNOWN_TOPIC_OR_PARTITION: no such topic, or the group has no offsets of it.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic]
