"""The group coordinator: routes each request to its group.

Guarantees: all groups are loaded before the first request is served; a group's requests are
executed in the order of arrival; every request is answered exactly once, even when the broker
stops.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kohort.broker.coordinator.command import Command, Step
from kohort.broker.coordinator.host import CoordinatorConfig, GroupHost, GroupObserver
from kohort.broker.core.group.classic.group import ClassicGroup
from kohort.broker.core.group.classic.join import check_request
from kohort.broker.core.group.classic.leave import ENTRIES_PER_STEP
from kohort.broker.core.group.group import Group
from kohort.broker.core.group.kinds import GroupKind
from kohort.broker.core.group.offsets.commit import error_without_group
from kohort.broker.core.group.requests import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    DeleteOffsetsResult,
    EnclosingTransaction,
    GroupDescription,
    JoinRequest,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    Now,
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from kohort.broker.core.group.states import GroupState
from kohort.broker.core.steps import Steps
from kohort.broker.runtime.later import Later
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

__all__ = ["CoordinatorConfig", "GroupCoordinator", "GroupObserver"]


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


class GroupCoordinator:
    """Executes the requests of group APIs. `host` has the groups themselves."""

    def __init__(self, host: GroupHost) -> None:
        self.host = host

    # Requests. A returned ticket is answered later.

    def join(self, group_id: str, request: JoinRequest) -> Later[JoinResult]:
        """Execute a JoinGroup."""
        ticket: Later[JoinResult] = Later()
        error = check_request(group_id, request, self.host.config.group)
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
        answer = self._send(group_id, command, ticket)
        if not request.member_id:
            # It may have been given an id; if the group hands that out later, the next join looks.
            self.host.drop_excess_ids()
        return answer

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
        return self._send(group_id, command, ticket)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Execute a Heartbeat, without waiting."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self.host.is_closed:
            return ErrorCode.NOT_COORDINATOR
        actor = self.host.actor(group_id)
        if actor is None:
            return self.host.error_without_actor(group_id) or ErrorCode.UNKNOWN_MEMBER_ID
        return actor.heartbeat(member_id, instance_id, generation)

    def leave(self, group_id: str, entries: Sequence[LeaveEntry]) -> Later[LeaveResult]:
        """Execute a LeaveGroup."""
        ticket: Later[LeaveResult] = Later()
        if not group_id:
            ticket.give(LeaveResult(ErrorCode.INVALID_GROUP_ID))
            return ticket

        def answer_absent() -> LeaveResult:
            return LeaveResult(entries=(ErrorCode.UNKNOWN_MEMBER_ID,) * len(entries))

        if len(entries) <= ENTRIES_PER_STEP:
            command = Command(
                _classic_step(
                    lambda group, now: group.leave(entries, ticket, now), ticket, answer_absent
                ),
                ticket,
                answer_absent=answer_absent,
            )
        else:
            command = Command(
                _classic_step(
                    lambda group, now: group.leave_steps(entries, ticket, now),
                    ticket,
                    answer_absent,
                ),
                ticket,
                answer_absent=answer_absent,
                is_exclusive=True,
            )
        return self._send(group_id, command, ticket)

    def commit(
        self, group_id: str, request: CommitRequest, *, may_answer_group_not_found: bool
    ) -> Later[CommitResult]:
        """Execute an OffsetCommit; `may_answer_group_not_found` from v9 on."""
        ticket: Later[CommitResult] = Later()
        error = error_without_group(request, may_answer_group_not_found=may_answer_group_not_found)
        command = Command(
            lambda group, now: group.commit(request, ticket, now),
            ticket,
            answer_absent=lambda: CommitResult((error,) * len(request.offsets)),
            creates=None if error else GroupKind.CLASSIC,
            is_gathered=True,
        )
        self.host.submit(group_id, command)
        return ticket

    def commit_transactional(
        self,
        group_id: str,
        request: CommitRequest,
        transaction: EnclosingTransaction,
        *,
        may_answer_group_not_found: bool,
    ) -> Later[CommitResult]:
        """Execute a TxnOffsetCommit of a transaction that includes the group's log partition;
        `may_answer_group_not_found` from v6 on.
        """
        ticket: Later[CommitResult] = Later()
        absent = error_without_group(request, may_answer_group_not_found=may_answer_group_not_found)
        count = len(request.offsets)

        def check() -> ErrorCode:
            error = transaction.check()
            if not error:
                self.host.note_pending(group_id, transaction.producer_id)
            return error

        checked = transaction._replace(check=check)
        command = Command(
            lambda group, now: group.commit_in_transaction(request, checked, ticket, now),
            ticket,
            answer_absent=lambda: CommitResult((absent,) * count),
            creates=None if absent else GroupKind.CLASSIC,
        )
        preparing = self.host.prepare_log()
        if preparing is None:
            self.host.submit(group_id, command)
        else:
            work = self._submit_when(preparing, group_id, command, ticket)
            self.host.start_task(work, f"commit for group {group_id}")
        return ticket

    def offsets_partition(self, group_id: str) -> int:
        """Return the partition of __consumer_offsets that holds the group's offsets."""
        return self.host.partition_of(group_id)

    def end_transaction(self, offsets_partition: int, producer_id: int, *, commit: bool) -> None:
        """Apply the transaction marker that was appended to this partition of __consumer_offsets:
        the offsets that the producer committed for groups there become valid, or are dropped.
        """
        self.host.end_transaction(offsets_partition, producer_id, commit=commit)

    def delete_group(self, group_id: str) -> Later[ErrorCode]:
        """Delete one group (DeleteGroups)."""
        ticket: Later[ErrorCode] = Later()
        command = Command(
            lambda group, _: group.delete(ticket),
            ticket,
            answer_absent=lambda: ErrorCode.GROUP_ID_NOT_FOUND,
            is_exclusive=True,
        )
        return self._send(group_id, command, ticket)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Later[DeleteOffsetsResult]:
        """Execute an OffsetDelete, of existing partitions."""
        ticket: Later[DeleteOffsetsResult] = Later()
        if not group_id:
            ticket.give(DeleteOffsetsResult(ErrorCode.INVALID_GROUP_ID))
            return ticket
        command = Command(
            lambda group, _: group.delete_offsets(partitions, ticket),
            ticket,
            answer_absent=lambda: DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND),
            is_exclusive=True,
        )
        return self._send(group_id, command, ticket)

    # Reads of durable state; they never wait.

    def read_error(self, group_id: str) -> ErrorCode:
        """Return the error for reads of this group; NONE if it is loaded or does not exist."""
        if self.host.is_closed:
            return ErrorCode.NOT_COORDINATOR
        actor = self.host.actor(group_id)
        if actor is None:
            return self.host.error_without_actor(group_id)
        return ErrorCode.NONE if actor.is_available else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """Return a group of the classic protocol, for reading; None if it is of another kind or
        absent.
        """
        group = self.host.group(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def living_group(self, group_id: str) -> ClassicGroup | None:
        """Return a group as `classic_group` does, unless it is DEAD."""
        group = self.classic_group(group_id)
        return None if group is None or group.state is GroupState.DEAD else group

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return the description of a group, None if it does not exist."""
        group = self.host.group(group_id)
        return None if group is None else group.describe()

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a group's committed offset, None if there is none."""
        group = self.host.group(group_id)
        return None if group is None else group.committed(topic, partition)

    async def _submit_when(
        self,
        prepared: Awaitable[None],
        group_id: str,
        command: Command,
        ticket: Later[CommitResult],
    ) -> None:
        try:
            await prepared
        except KafkaError as error:
            logger.warning("The groups' log cannot be made: %s", error)
            ticket.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self.host.submit(group_id, command)

    def _send(self, group_id: str, command: Command, ticket: Later[Any]) -> Later[Any]:
        self.host.submit(group_id, command)
        return ticket


def _no_member_to_sync() -> SyncResult:
    """Make the answer where no member is left. No lambda in `sync`: thousands of commands may wait
    while a group is written.
    """
    return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
