"""Builds and reads the requests between a member and its coordinator, and the subscriptions and
assignments in them, which members exchange (the consumer protocol).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kohort.client.core.errors import InconsistentProtocolError
from kohort.client.core.group.assignors.assignor import Assignment, Assignor, GroupMember
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.heartbeat import SendLeave
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.rejoin import TEXT_LENGTH_MAX, Rejoin
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.partitions import TopicPartition, by_topic, from_topics
from kohort.protocol.codec import decode_versioned, encode_versioned
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kohort.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.protocol.messages.membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

PROTOCOL_TYPE: Final = "consumer"


def join_request(
    config: MembershipConfig,
    identity: Identity,
    assignors: Iterable[Assignor],
    subscription: Subscription,
    rejoin: Rejoin,
) -> JoinGroupRequest:
    """Build a JoinGroup for any version; older versions leave out newer fields."""
    topics = subscription.topics
    protocols = [
        JoinGroupRequestProtocol(
            name=assignor.name,
            metadata=encode_subscription(
                topics,
                assignor.user_data(topics),
                subscription.assigned,
                identity.generation,
                config.rack,
            ),
        )
        for assignor in assignors
    ]
    return JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=identity.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=rejoin.wire_text,
        join_reason=rejoin.reason,
    )


def sync_request(
    config: MembershipConfig, identity: Identity, assignment: Assignment
) -> SyncGroupRequest:
    """Build a SyncGroup. The leader's contains all assignments, a follower's is empty."""
    return SyncGroupRequest(
        group_id=config.group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=identity.protocol_name,
        assignments=encode_assignment(assignment),
    )


LeaveRequest: TypeAlias = LeaveGroupRequest | ConsumerGroupHeartbeatRequest


def leave_type(leave: SendLeave) -> type[LeaveRequest]:
    return LeaveGroupRequest if leave.leave_epoch is None else ConsumerGroupHeartbeatRequest


def leave_request(
    group_id: str, instance_id: str | None, leave: SendLeave, version: int
) -> LeaveRequest:
    """Build the request with which one member leaves: in the consumer group protocol a heartbeat,
    in the classic protocol a LeaveGroup, before version 3 with the member id only.
    """
    if leave.leave_epoch is not None:
        return ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=leave.identity.member_id,
            member_epoch=leave.leave_epoch,
            instance_id=instance_id,
            reason=leave.reason[:TEXT_LENGTH_MAX],
        )
    if version < 3:
        return LeaveGroupRequest(group_id=group_id, member_id=leave.identity.member_id)
    member = MemberIdentity(
        member_id=leave.identity.member_id, group_instance_id=instance_id, reason=leave.reason
    )
    return LeaveGroupRequest(group_id=group_id, members=[member])


def coordinator_request(group_id: str, version: int) -> FindCoordinatorRequest:
    """Build a FindCoordinator for one group; from version 4 on the request has a list (KIP-699)."""
    if version < 4:
        return FindCoordinatorRequest(key=group_id)
    return FindCoordinatorRequest(coordinator_keys=[group_id])


class FoundCoordinator(NamedTuple):
    error: ErrorCode
    node_id: int
    host: str
    port: int


def coordinator_in(answer: FindCoordinatorResponse) -> FoundCoordinator:
    """Read a FindCoordinator response of any version."""
    node = answer.coordinators[0] if answer.coordinators else answer
    return FoundCoordinator(ErrorCode(node.error_code), node.node_id, node.host, node.port)


WRITTEN_VERSION: Final = 3
"""Version in which subscriptions are written. All versions can be read, because newer ones only
append fields."""


def encode_subscription(
    topics: Collection[str],
    user_data: bytes | None,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
) -> bytes:
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
