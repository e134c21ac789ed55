"""Encoding of the consumer protocol: subscriptions and assignments.

Written as version 3. Versions from 0 on can be read; of newer ones the fields of version 3, because
fields are only ever appended.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from kohort.client.core.errors import InconsistentProtocolError
from kohort.client.core.group.assignors.assignor import Assignment, GroupMember
from kohort.client.core.partitions import TopicPartition, by_topic, from_topics
from kohort.protocol.codec import decode_versioned, encode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kohort.protocol.messages.join_group import JoinGroupResponseMember
from kohort.protocol.messages.sync_group import SyncGroupRequestAssignment

WRITTEN_VERSION: Final = 3


def encode_subscription(
    topics: Collection[str],
    user_data: bytes | None,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
) -> bytes:
    """Encode a subscription, the metadata of one assignor in a JoinGroup."""
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=user_data,
            owned_partitions=by_topic(owned),
            generation_id=generation,
            rack_id=rack,
        ),
        WRITTEN_VERSION,
    )


def decode_member(member: JoinGroupResponseMember) -> GroupMember:
    """Decode a member from a JoinGroup response to the leader.

    Raises:
        InconsistentProtocolError: its metadata is not a consumer's subscription.
    """
    try:
        metadata, _ = decode_versioned(
            ConsumerProtocolSubscription, member.metadata, newer_is_readable=True
        )
    except DecodeError as error:
        raise InconsistentProtocolError(
            f"the subscription of member {member.member_id} cannot be read: {error}"
        ) from error
    return GroupMember(
        member_id=member.member_id,
        topics=frozenset(metadata.topics),
        instance_id=member.group_instance_id,
        owned=tuple(from_topics(metadata.owned_partitions)),
        generation=metadata.generation_id,
        user_data=metadata.user_data,
        rack=metadata.rack_id,
    )


def encode_assignment(assignment: Assignment) -> list[SyncGroupRequestAssignment]:
    """Encode each member's assignment, for a leader's SyncGroup."""
    return [
        SyncGroupRequestAssignment(member_id=member_id, assignment=encode_share(partitions))
        for member_id, partitions in assignment.items()
    ]


def encode_share(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode one member's assignment."""
    share = ConsumerProtocolAssignment(assigned_partitions=by_topic(partitions))
    # All versions have the same fields; version 0 can be read by all members.
    return encode_versioned(share, 0)


def decode_share(share: bytes) -> Sequence[TopicPartition]:
    """Decode the assignment of this member.

    Raises:
        InconsistentProtocolError: it cannot be decoded.
    """
    try:
        assignment, _ = decode_versioned(ConsumerProtocolAssignment, share, newer_is_readable=True)
    except DecodeError as error:
        raise InconsistentProtocolError(f"the assignment cannot be read: {error}") from error
    return from_topics(assignment.assigned_partitions)
