"""The requests of the classic protocol: JoinGroup, SyncGroup, LeaveGroup.

A group of another kind answers them as Kafka's do. What groups of all kinds are asked is in
:mod:`kohort.broker.coordinator.coordinator`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kohort.broker.coordinator.command import Command, Step
from kohort.broker.coordinator.host import GroupHost
from kohort.broker.runtime.later import Later
from kohort.groups.classic.group import ClassicGroup
from kohort.groups.classic.join import check_request
from kohort.groups.classic.leave import ENTRIES_PER_STEP
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import (
    JoinRequest,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    Now,
    SyncRequest,
    SyncResult,
)
from kohort.groups.states import GroupState
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode


def classic_group(host: GroupHost, group_id: str) -> ClassicGroup | None:
    """Return a group of the classic protocol, for reading; None if it is of another kind or
    absent.
    """
    group = host.group(group_id)
    return group if isinstance(group, ClassicGroup) else None


def living_group(host: GroupHost, group_id: str) -> ClassicGroup | None:
    """Return a group as `classic_group` does, unless it is DEAD."""
    group = classic_group(host, group_id)
    return None if group is None or group.state is GroupState.DEAD else group


class ClassicRequests:
    """Executes the requests; a returned ticket is answered later."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host

    def join(self, group_id: str, request: JoinRequest) -> Later[JoinResult]:
        """Execute a JoinGroup."""
        ticket: Later[JoinResult] = Later()
        error = check_request(group_id, request, self._host.config.group)
        if error:
            ticket.give(JoinResult(error, request.member_id))
            return ticket
        command = Command(
            _classic_step(
                lambda group, now: group.join(request, ticket, now),
                ticket,
                lambda: JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id),
            ),
            ticket,
            answer_absent=lambda: JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id),
            creates=None if request.member_id else GroupKind.CLASSIC,
            writes_group_record=not request.member_id and request.instance_id is not None,
        )
        self._host.submit(group_id, command)
        if not request.member_id:
            # It may have been given an id; if the group hands that out later, the next join looks.
            self._host.drop_excess_ids()
        return ticket

    def sync(self, group_id: str, request: SyncRequest) -> Later[SyncResult]:
        """Execute a SyncGroup."""
        ticket: Later[SyncResult] = Later()
        if not group_id:
            ticket.give(SyncResult(ErrorCode.INVALID_GROUP_ID))
            return ticket
        command = Command(
            _classic_step(
                lambda group, now: group.sync(request, ticket, now), ticket, _no_member_to_sync
            ),
            ticket,
            answer_absent=_no_member_to_sync,
        )
        self._host.submit(group_id, command)
        return ticket

    def leave(self, group_id: str, entries: Sequence[LeaveEntry]) -> Later[LeaveResult]:
        """Execute a LeaveGroup."""
        ticket: Later[LeaveResult] = Later()
        if not group_id:
            ticket.give(LeaveResult(ErrorCode.INVALID_GROUP_ID))
            return ticket

        def answer_absent() -> LeaveResult:
            return LeaveResult(entries=(ErrorCode.UNKNOWN_MEMBER_ID,) * len(entries))

        is_few = len(entries) <= ENTRIES_PER_STEP
        leave = ClassicGroup.leave if is_few else ClassicGroup.leave_steps
        command = Command(
            _classic_step(
                lambda group, now: leave(group, entries, ticket, now), ticket, answer_absent
            ),
            ticket,
            answer_absent=answer_absent,
            is_exclusive=not is_few,
        )
        self._host.submit(group_id, command)
        return ticket


def _classic_step(
    step: Callable[[ClassicGroup, Now], Steps[None] | None],
    ticket: Later[Any],
    answer_other: Callable[[], object],
) -> Step:
    """Return a step of classic groups, to which a group of another kind has `answer_other`."""

    def execute(group: Group, now: Now) -> Steps[None] | None:
        if isinstance(group, ClassicGroup):
            return step(group, now)
        ticket.give(answer_other())
        return None

    return execute


def _no_member_to_sync() -> SyncResult:
    """Make the answer where no member is left. No lambda in `sync`: thousands of commands may wait
    while a group is written.
    """
    return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
