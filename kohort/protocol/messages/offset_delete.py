"""OffsetDelete (key 47): delete committed offsets. Only v0, not flexible. KIP-496."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, String


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    name: String
    partitions: list[OffsetDeleteRequestPartition]


@request(key=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    group_id: String
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetDeleteResponseTopic:
    name: String
    partitions: list[OffsetDeleteResponsePartition]


@response(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    """One outcome per partition, none if the top level has an error.

    Error codes, top level:
    - NON_EMPTY_GROUP: it has members and is not a consumer group.

    Error codes, per partition:
    - GROUP_SUBSCRIBED_TO_TOPIC: members read the topic.
    """

    error_code: Int16
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic]
