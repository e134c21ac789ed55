"""Records of __consumer_offsets: committed positions and the state of groups.

Key and value are each preceded by an int16. For a key it is the type of the record (0 and 1 an
offset, 2 a group), for a value the version of its layout. A null value deletes the entry of the
key.

Offset values: v1 explicit expiry; v3 leader epoch (KIP-320), expiry dropped (KIP-211); v4 flexible
(KIP-915) with the topic id. Group values: v1 rebalance timeout (KIP-62); v2 time of the last
change (KIP-211); v3 instance ids (KIP-345); v4 flexible (KIP-915).
"""

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import ZERO_UUID, Bytes, Int32, Int64, String, Uuid


@record(versions="0-1", flexible="none")
class OffsetCommitKey:
    """Identifies a position; early brokers wrote version 0, with the same layout."""

    group: String
    topic: String
    partition: Int32


@record(versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: Int64
    leader_epoch: Int32 = field(default=-1, since=3, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(default=-1, since=1, until=1, ignorable=True)
    """Only v1, written if the commit had its own retention time."""
    topic_id: Uuid = field(default=ZERO_UUID, since=4, tag=0, ignorable=True)


@record(versions="2", flexible="none")
class GroupMetadataKey:
    group: String


@struct
class MemberMetadata:
    member_id: String
    group_instance_id: String | None = field(default=None, since=3, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field(default=-1, since=1, ignorable=True)
    """-1 in v0, which uses the session timeout instead."""
    session_timeout: Int32
    subscription: Bytes
    """The metadata for the group's chosen protocol."""
    assignment: Bytes


@record(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A generation of a classic group: its protocol, leader and members."""

    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field(default=-1, since=2, ignorable=True)
    """-1 before v2: unknown."""
    members: list[MemberMetadata]
