"""Builds and reads the requests between a member and its coordinator."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kohort.client.core.group.assignors.assignor import Assignment, Assignor
from kohort.client.core.group.heartbeat import SendLeave
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.rejoin import Rejoin
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.group.wire_forms import encode_assignment, encode_subscription
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from kohort.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.protocol.messages.sync_group import SyncGroupRequest

PROTOCOL_TYPE: Final = "consumer"


class MembershipConfig(NamedTuple):
    """Kafka's settings of the same names; `max_poll_interval_ms` is sent as the rebalance
    timeout.
    """

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    max_poll_interval_ms: int = 300_000
    rack: str | None = None
    first_reason: JoinReason = JoinReason.RESTART
    """The reason sent with the first join of this process: RESTART or UPGRADE."""


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
    """Build a SyncGroup: the leader's has all assignments, a follower's none."""
    return SyncGroupRequest(
        group_id=config.group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=identity.protocol_name,
        assignments=encode_assignment(assignment),
    )


def leave_request(
    group_id: str, instance_id: str | None, leave: SendLeave, version: int
) -> LeaveGroupRequest:
    """Build a LeaveGroup for one member; before version 3 it holds only the member id."""
    if version < 3:
        return LeaveGroupRequest(group_id=group_id, member_id=leave.identity.member_id)
    member = MemberIdentity(
        member_id=leave.identity.member_id, group_instance_id=instance_id, reason=leave.reason
    )
    return LeaveGroupRequest(group_id=group_id, members=[member])


def coordinator_request(group_id: str, version: int) -> FindCoordinatorRequest:
    """Build a FindCoordinator for one group; from version 4 on it is a list of one (KIP-699)."""
    if version < 4:
        return FindCoordinatorRequest(key=group_id)
    return FindCoordinatorRequest(coordinator_keys=[group_id])


class FoundCoordinator(NamedTuple):
    """The coordinator of a group, or the error code."""

    error: ErrorCode
    node_id: int
    host: str
    port: int


def coordinator_in(answer: FindCoordinatorResponse) -> FoundCoordinator:
    """Read a FindCoordinator response of any version."""
    node = answer.coordinators[0] if answer.coordinators else answer
    return FoundCoordinator(ErrorCode(node.error_code), node.node_id, node.host, node.port)
