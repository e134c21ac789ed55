"""Where Kafka keeps what our messages are compared with, for those where the name does not tell."""

from typing import Any, Final

from kohort.protocol.message import schema_of
from kohort.protocol.messages import consumer_groups_log as groups
from kohort.protocol.messages import share_groups_log as share_groups
from kohort.protocol.messages import share_state_log as share_state
from kohort.protocol.messages.cluster_metadata import RECORD_TYPES
from tests.property.message_values import Message
from tests.support import messages as m

EXTENSIONS: Final = {
    ("JoinGroupRequest", "join_reason"),
    ("ConsumerGroupHeartbeatRequest", "join_reason"),
    ("ConsumerGroupHeartbeatRequest", "reason"),
}
"""Fields that only Kohort has; tags, so that other brokers and clients skip them."""

RENAMED: Final = {
    "TopicAsked": "TopicData",
    "PartitionAsked": "PartitionData",
    "EntryResult": "EntryData",
    "DescribedEntry": "EntryData",
    "DescribedTransaction": "TransactionState",
}
"""Structures, and Kafka's names of them: requests and responses that have the same ones twice."""

SHARED: Final = {
    "OffsetFetchRequestTopics": "OffsetFetchRequestTopic",
    "OffsetFetchResponsePartitions": "OffsetFetchResponsePartition",
    "OffsetFetchResponseTopics": "OffsetFetchResponseTopic",
    "CreatableRenewers": "TokenPrincipal",
    "DescribeDelegationTokenOwner": "TokenPrincipal",
    "DescribedDelegationTokenRenewer": "TokenPrincipal",
}
"""Kafka's structures, and ours in their place, which it has more than once."""

CLIENTS, COORDINATOR = "kafka-clients", "kafka-group-coordinator"
TRANSACTIONS = "kafka-transaction-coordinator"
SHARE_STATE = "kafka-share-coordinator"
METADATA = "kafka-metadata"

DATA_RECORDS: Final[dict[Message, str]] = {
    m.ConsumerProtocolSubscription: CLIENTS,
    m.ConsumerProtocolAssignment: CLIENTS,
    m.OffsetCommitValue: COORDINATOR,
    m.GroupMetadataValue: COORDINATOR,
    groups.ConsumerGroupMetadataValue: COORDINATOR,
    groups.ConsumerGroupMemberMetadataValue: COORDINATOR,
    groups.ConsumerGroupTargetAssignmentMetadataValue: COORDINATOR,
    groups.ConsumerGroupTargetAssignmentMemberValue: COORDINATOR,
    groups.ConsumerGroupCurrentMemberAssignmentValue: COORDINATOR,
    groups.ConsumerGroupRegularExpressionValue: COORDINATOR,
    share_groups.ShareGroupMemberMetadataValue: COORDINATOR,
    share_groups.ShareGroupMetadataValue: COORDINATOR,
    share_groups.ShareGroupTargetAssignmentMetadataValue: COORDINATOR,
    share_groups.ShareGroupTargetAssignmentMemberValue: COORDINATOR,
    share_groups.ShareGroupCurrentMemberAssignmentValue: COORDINATOR,
    share_groups.ShareGroupStatePartitionMetadataValue: COORDINATOR,
    share_state.ShareSnapshotValue: SHARE_STATE,
    share_state.ShareUpdateValue: SHARE_STATE,
    m.TransactionLogValue: TRANSACTIONS,
    m.SnapshotHeaderRecord: CLIENTS,
    m.SnapshotFooterRecord: CLIENTS,
    **dict.fromkeys(RECORD_TYPES.values(), METADATA),
}
"""Headers and records whose versions are Kafka's, and the jar that defines them."""

RECORD_KEYS: Final[dict[tuple[Message, int], tuple[str, str]]] = {
    (m.OffsetCommitKey, 0): (COORDINATOR, "LegacyOffsetCommitKey"),
    (m.OffsetCommitKey, 1): (COORDINATOR, "OffsetCommitKey"),
    (m.GroupMetadataKey, 2): (COORDINATOR, "GroupMetadataKey"),
    (groups.ConsumerGroupMetadataKey, 3): (COORDINATOR, "ConsumerGroupMetadataKey"),
    (groups.ConsumerGroupMetadataKey, 4): (COORDINATOR, "ConsumerGroupPartitionMetadataKey"),
    (groups.ConsumerGroupMemberMetadataKey, 5): (COORDINATOR, "ConsumerGroupMemberMetadataKey"),
    (groups.ConsumerGroupTargetAssignmentMetadataKey, 6): (
        COORDINATOR,
        "ConsumerGroupTargetAssignmentMetadataKey",
    ),
    (groups.ConsumerGroupAssignmentKey, 7): (
        COORDINATOR,
        "ConsumerGroupTargetAssignmentMemberKey",
    ),
    (groups.ConsumerGroupAssignmentKey, 8): (
        COORDINATOR,
        "ConsumerGroupCurrentMemberAssignmentKey",
    ),
    (groups.ConsumerGroupRegularExpressionKey, 16): (
        COORDINATOR,
        "ConsumerGroupRegularExpressionKey",
    ),
    (share_groups.ShareGroupMemberMetadataKey, 10): (COORDINATOR, "ShareGroupMemberMetadataKey"),
    (share_groups.ShareGroupMetadataKey, 11): (COORDINATOR, "ShareGroupMetadataKey"),
    (share_groups.ShareGroupMetadataKey, 12): (
        COORDINATOR,
        "ShareGroupTargetAssignmentMetadataKey",
    ),
    (share_groups.ShareGroupAssignmentKey, 13): (
        COORDINATOR,
        "ShareGroupTargetAssignmentMemberKey",
    ),
    (share_groups.ShareGroupAssignmentKey, 14): (
        COORDINATOR,
        "ShareGroupCurrentMemberAssignmentKey",
    ),
    (share_groups.ShareGroupStatePartitionMetadataKey, 15): (
        COORDINATOR,
        "ShareGroupStatePartitionMetadataKey",
    ),
    (share_state.ShareStateKey, 0): (SHARE_STATE, "ShareSnapshotKey"),
    (share_state.ShareStateKey, 1): (SHARE_STATE, "ShareUpdateKey"),
    (m.TransactionLogKey, 0): (TRANSACTIONS, "TransactionLogKey"),
}
"""The int16 before a key is the type of the record: Kafka's definitions call it apiKey and define
one version of each, ours call it the version."""


def without_extensions(value: Any) -> Any:  # noqa: ANN401
    """The message, with the defaults in the fields that only Kohort has."""
    schema = schema_of(type(value))
    for field in schema.fields:
        if (schema.name, field.name) in EXTENSIONS:
            setattr(value, field.name, field.make_default())
    return value
