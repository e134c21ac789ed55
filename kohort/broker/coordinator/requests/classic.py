"""The requests of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

As in Kafka, a consumer group executes them for members that use the classic protocol, and groups
of other kinds reject them. :mod:`kohort.broker.coordinator.coordinator` has the other requests.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.host import GroupHost
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.classic.join import check_request
from kohort.groups.classic.leave import ENTRIES_PER_STEP
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import (
    Connection,
    JoinRequest,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    Now,
    SyncRequest,
    SyncResult,
)
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode


class ClassicRequests:
    """Executes requests of the classic protocol; a returned `Deferred` completes later."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        connection: Connection | None = None,
    ) -> ErrorCode:
        """Execute a Heartbeat, without waiting, even while an append is in progress."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        host = self._host
        if host.is_closed:
            return ErrorCode.NOT_COORDINATOR
        actor = host.actor(group_id)
        if actor is None:
            return host.error_without_actor(group_id) or ErrorCode.UNKNOWN_MEMBER_ID
        if not actor.is_available:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        group = actor.group
        membership = group.membership
        if isinstance(membership, ClassicMembership):
            error = membership.heartbeat(
                member_id, instance_id, generation, host.monotonic_ms(), connection
            )
        elif isinstance(membership, ConsumerMembership):
            error = membership.heartbeat_of_classic(
                member_id, instance_id, generation, host.monotonic_ms(), connection
            )
        else:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.outbox.has_ready_effects:
            actor.apply_ready_effects()
        return error

    def join(self, group_id: str, request: JoinRequest) -> Deferred[JoinResult]:
        """Execute a JoinGroup. A group without a type becomes a classic group."""
        ticket: Deferred[JoinResult] = Deferred()
        error = check_request(group_id, request, self._host.config.group)
        member_id = request.member_id
        if error:
            ticket.set_result(JoinResult(error, member_id))
            return ticket
        consumers = self._host.membership(group_id, ConsumerMembership)
        if consumers is not None and consumers.is_empty:
            self._host.submit(group_id, Command(self._begin_classic, is_exclusive=True))
        elif consumers is not None:
            self._host.submit(group_id, _join_consumers(request, ticket))
            return ticket
        command = Command(
            lambda group, now: self._join(group, request, ticket, now),
            ticket,
            answer_absent=JoinResult(_UNKNOWN, member_id) if member_id else None,
            creates_group=not member_id,
            writes_group_record=not member_id and request.instance_id is not None,
        )
        self._host.submit(group_id, command)
        if not member_id:
            self._drop_excess_ids(group_id)
        return ticket

    def _begin_classic(self, group: Group, now: Now) -> None:
        """Convert an empty consumer group to a classic group, whose generations continue from the
        consumer group's epoch.
        """
        del now
        membership = group.membership
        if isinstance(membership, ConsumerMembership) and membership.is_empty:
            classic = self._host.new_membership[GroupKind.CLASSIC](group)
            assert isinstance(classic, ClassicMembership)
            classic.data.generation = membership.data.epoch
            group.convert(classic, ())

    def _drop_excess_ids(self, group_id: str) -> None:
        """Drop the oldest unused member ids of all groups if they need too much memory. Call this
        after a JoinGroup to `group_id`, which may have created a member id. A member id that is
        created only after an append is counted at the next JoinGroup.
        """
        membership = self._host.membership(group_id, ClassicMembership)
        if membership is None or not membership.data.unused_ids.are_too_many:
            return
        for holder_id, member_id in membership.data.unused_ids.take_oldest():
            self._host.submit(holder_id, Command(partial(_drop_id, member_id), is_exclusive=True))

    def _join(
        self, group: Group, request: JoinRequest, ticket: Deferred[JoinResult], now: Now
    ) -> None:
        membership = group.membership
        if membership is None and not group.is_dead:
            membership = group.membership = self._host.new_membership[GroupKind.CLASSIC](group)
        if isinstance(membership, ClassicMembership):
            membership.join(request, ticket, now)
        elif isinstance(membership, ConsumerMembership):
            # The group became a consumer group after the join was queued: the client joins again.
            group.outbox.reply(ticket, JoinResult(_UPGRADED, request.member_id))
        else:
            group.outbox.reply(ticket, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))

    def sync(self, group_id: str, request: SyncRequest) -> SyncResult | Deferred[SyncResult]:
        """Execute a SyncGroup; return the result if it is available, otherwise a `Deferred`."""
        if not group_id:
            return SyncResult(ErrorCode.INVALID_GROUP_ID)
        # Most members of a large group sync when the assignment is available; no command is needed
        # then.
        actor = self._host.actor(group_id)
        if actor is not None and actor.is_at_rest and not self._host.is_closed:
            membership = actor.group.membership
            if isinstance(membership, ClassicMembership):
                result = membership.answer_sync(request)
                if actor.group.outbox.has_ready_effects:
                    actor.apply_ready_effects()
                if result is not None:
                    return result
        ticket: Deferred[SyncResult] = Deferred()

        def step(group: Group, now: Now) -> None:
            membership = group.membership
            if isinstance(membership, (ClassicMembership, ConsumerMembership)):
                membership.sync(request, ticket, now)
            else:
                group.outbox.reply(ticket, _NO_MEMBER_TO_SYNC)

        self._host.submit(group_id, Command(step, ticket, answer_absent=_NO_MEMBER_TO_SYNC))
        return ticket

    def leave(self, group_id: str, entries: Sequence[LeaveEntry]) -> Deferred[LeaveResult]:
        ticket: Deferred[LeaveResult] = Deferred()
        if not group_id:
            ticket.set_result(LeaveResult(ErrorCode.INVALID_GROUP_ID))
            return ticket
        no_members = LeaveResult(entries=(_UNKNOWN,) * len(entries))
        if self._host.membership(group_id, ConsumerMembership) is not None:
            self._host.submit(group_id, _leave_consumers(entries, ticket, no_members))
            return ticket
        is_few = len(entries) <= ENTRIES_PER_STEP
        leave = ClassicMembership.leave if is_few else ClassicMembership.leave_steps

        def step(group: Group, now: Now) -> Steps[None] | None:
            membership = group.membership
            if isinstance(membership, ClassicMembership):
                return leave(membership, entries, ticket, now)
            group.outbox.reply(ticket, no_members)
            return None

        command = Command(step, ticket, answer_absent=no_members, is_exclusive=not is_few)
        self._host.submit(group_id, command)
        return ticket


def _join_consumers(request: JoinRequest, ticket: Deferred[JoinResult]) -> Command:
    """Return the command for a JoinGroup to a consumer group with members."""

    def step(group: Group, now: Now) -> Steps[None] | None:
        membership = group.membership
        if isinstance(membership, ConsumerMembership):
            return membership.join(request, ticket, now)
        error = ErrorCode.REBALANCE_IN_PROGRESS
        group.outbox.reply(ticket, JoinResult(error, request.member_id))
        return None

    absent = JoinResult(_UNKNOWN, request.member_id)
    return Command(step, ticket, answer_absent=absent, is_exclusive=True)


def _leave_consumers(
    entries: Sequence[LeaveEntry], ticket: Deferred[LeaveResult], no_members: LeaveResult
) -> Command:
    """Return the command for a LeaveGroup of members of a consumer group."""

    def step(group: Group, now: Now) -> Steps[None] | None:
        membership = group.membership
        if isinstance(membership, ClassicMembership | ConsumerMembership):
            return membership.leave_steps(entries, ticket, now)
        group.outbox.reply(ticket, no_members)
        return None

    return Command(step, ticket, answer_absent=no_members, is_exclusive=True)


def _drop_id(member_id: str, group: Group, now: Now) -> None:
    """Forget an unused member id. If the group is now empty, remove it, because the group takes
    most of the memory.
    """
    membership = group.membership
    if isinstance(membership, ClassicMembership):
        membership.drop_unused_id(member_id, now)
        if membership.is_unused and not group.offsets.count:
            group.expire_offsets(now)


_UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID
_UPGRADED: Final = ErrorCode.REBALANCE_IN_PROGRESS
_NO_MEMBER_TO_SYNC: Final = SyncResult(_UNKNOWN)
