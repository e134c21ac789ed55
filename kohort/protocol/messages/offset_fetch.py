"""OffsetFetch (key 9): read committed positions of one group, from v8 of several.

v2 null for all topics, top-level error; v3 throttle time; v5 leader epoch (KIP-320); v6 flexible;
v7 wait for open transactions (KIP-447); v8 several groups (KIP-709); v9 member epochs (KIP-848);
v10 topic ids instead of names (KIP-848). Version 0 read from ZooKeeper and ended with Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Bool, Int16, Int32, Int64, String, Uuid


@struct
class OffsetFetchRequestTopic:
    """Partitions of one topic, by id from v10."""

    name: String = field(default="", until=9, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup:
    group_id: String
    member_id: String | None = field(default=None, since=9, ignorable=True)
    member_epoch: Int32 = field(default=-1, since=9, ignorable=True)
    topics: list[OffsetFetchRequestTopic] | None
    """The topics, None for everything that the group has committed."""


@request(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """Up to v7 one group in the outer fields, from v8 the list of groups."""

    group_id: String = field(default="", until=7)
    topics: list[OffsetFetchRequestTopic] | None = field(default=[], until=7, nullable_since=2)
    """The topics, None for everything that the group has committed."""
    groups: list[OffsetFetchRequestGroup] = field(default=[], since=8)
    require_stable: Bool = field(default=False, since=7)
    """Refuse partitions with a commit inside an open transaction."""


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32
    committed_offset: Int64
    """-1 when nothing was committed."""
    committed_leader_epoch: Int32 = field(default=-1, since=5, ignorable=True)
    metadata: String | None
    error_code: Int16


@struct
class OffsetFetchResponseTopic:
    name: String = field(default="", until=9, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponseGroup:
    """The positions of one group, or why there are none."""

    group_id: String
    topics: list[OffsetFetchResponseTopic]
    error_code: Int16 = field(default=0)


@response(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """Up to v7 one group in the outer fields, from v8 the list of groups.

    Error codes, per group (v1: on every partition):
    - GROUP_ID_NOT_FOUND: the group has a type without committed offsets, such as a share group.
    - UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (v9): the KIP-848 group has no such member, or the
      member has another epoch.

    Error codes, per partition:
    - UNSTABLE_OFFSET_COMMIT (v7): a transaction with a commit here is open and require_stable is
      set.
    - UNKNOWN_TOPIC_OR_PARTITION: not for an unknown topic name, whose offset is -1 without error.
    """

    throttle_time_ms: Int32 = field(default=0, since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(default=[], until=7)
    error_code: Int16 = field(default=0, since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(default=[], since=8)
