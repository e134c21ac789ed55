"""The structures that consumers exchange through JoinGroup and SyncGroup.

In a classic group, the broker passes both structures on unchanged. It decodes subscriptions to know
the group's topics, and both for the rebalance history. Each is preceded by an int16 version; newer
versions only append fields, so that a reader can ignore the fields it does not know.

v1 owned partitions for cooperative rebalancing (KIP-429); v2 the generation they were owned in
(KIP-792); v3 rack (KIP-881).
"""

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import Bytes, Int32, String


@struct
class TopicPartition:
    topic: String
    partitions: list[Int32]


@record(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    """A member's subscription: the metadata of a JoinGroup protocol."""

    topics: list[String]
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[TopicPartition] = field(default=[], since=1, ignorable=True)
    """The member's partitions before the rebalance."""
    generation_id: Int32 = field(default=-1, since=2, ignorable=True)
    """The generation of owned_partitions, -1 if unknown."""
    rack_id: String | None = field(default=None, since=3, ignorable=True)


@record(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    """A member's partitions: the assignment in SyncGroup."""

    assigned_partitions: list[TopicPartition]
    user_data: Bytes | None = field(default=None)
