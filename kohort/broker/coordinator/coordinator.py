"""Finds the group a request speaks to.

Promises: all groups are loaded before the first request is served; a group's requests are stepped
in the order in which they came; every request is answered exactly once, also when the broker stops.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.host import CoordinatorConfig, GroupHost, GroupObserver
from kohort.broker.core.group.classic.group import ClassicGroup
from kohort.broker.core.group.classic.join import check_request
from kohort.broker.core.group.classic.leave import ENTRIES_PER_STEP
from kohort.broker.core.group.group import Group
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
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from kohort.broker.runtime.later import Later
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

__all__ = ["CoordinatorConfig", "GroupCoordinator", "GroupObserver"]


def _classic(group: Group) -> ClassicGroup:
    """A group that members of the classic protocol may speak to; there is no other kind yet."""
    assert isinstance(group, ClassicGroup)
    return group


class GroupCoordinator:
    """The requests that groups are sent. `host` has the groups themselves."""

    def __init__(self, host: GroupHost) -> None:
        self.host = host

    # Requests. Those that return a ticket are answered through it.

    def join(self, group_id: str, request: JoinRequest) -> Later[JoinResult]:
        """JoinGroup."""
        ticket: Later[JoinResult] = Later()
        error = check_request(group_id, request, self.host.config.group)
        if error:
            ticket.give(JoinResult(error, request.member_id))
            return ticket
        command = Command(
            lambda group, now: _classic(group).join(request, ticket, now),
            ticket,
            answer_absent=lambda: JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id),
            creates_group=not request.member_id,
            writes_group_record=not request.member_id and request.instance_id is not None,
        )
        return self._send(group_id, command, ticket)

    def sync(self, group_id: str, request: SyncRequest) -> Later[SyncResult]:
        """SyncGroup."""
        ticket: Later[SyncResult] = Later()
        if not group_id:
            ticket.give(SyncResult(ErrorCode.INVALID_GROUP_ID))
            return ticket
        command = Command(
            lambda group, now: _classic(group).sync(request, ticket, now),
            ticket,
            answer_absent=_no_member_to_sync,
        )
        return self._send(group_id, command, ticket)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Heartbeat; never waits."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self.host.is_closed:
            return ErrorCode.NOT_COORDINATOR
        actor = self.host.actor(group_id)
        if actor is None:
            return self.host.error_without_actor(group_id) or ErrorCode.UNKNOWN_MEMBER_ID
        return actor.heartbeat(member_id, instance_id, generation)

    def leave(self, group_id: str, entries: Sequence[LeaveEntry]) -> Later[LeaveResult]:
        """LeaveGroup."""
        ticket: Later[LeaveResult] = Later()
        if not group_id:
            ticket.give(LeaveResult(ErrorCode.INVALID_GROUP_ID))
            return ticket

        def answer_absent() -> LeaveResult:
            return LeaveResult(entries=(ErrorCode.UNKNOWN_MEMBER_ID,) * len(entries))

        if len(entries) <= ENTRIES_PER_STEP:
            command = Command(
                lambda group, now: _classic(group).leave(entries, ticket, now),
                ticket,
                answer_absent=answer_absent,
            )
        else:
            command = Command(
                lambda group, now: _classic(group).leave_steps(entries, ticket, now),
                ticket,
                answer_absent=answer_absent,
                is_exclusive=True,
            )
        return self._send(group_id, command, ticket)

    def commit(
        self, group_id: str, request: CommitRequest, *, may_answer_group_not_found: bool
    ) -> Later[CommitResult]:
        """OffsetCommit; `may_answer_group_not_found` from v9 on."""
        ticket: Later[CommitResult] = Later()
        error = error_without_group(request, may_answer_group_not_found=may_answer_group_not_found)
        command = Command(
            lambda group, now: group.commit(request, ticket, now),
            ticket,
            answer_absent=lambda: CommitResult((error,) * len(request.offsets)),
            creates_group=not error,
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
        """TxnOffsetCommit, of a transaction that the log's partition of this group is in;
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
            creates_group=not absent,
        )
        preparing = self.host.prepare_log()
        if preparing is None:
            self.host.submit(group_id, command)
        else:
            work = self._submit_when(preparing, group_id, command, ticket)
            self.host.start_task(work, f"commit for group {group_id}")
        return ticket

    def offsets_partition(self, group_id: str) -> int:
        """The partition of __consumer_offsets where the group's positions lie."""
        return self.host.partition_of(group_id)

    def end_transaction(self, offsets_partition: int, producer_id: int, *, commit: bool) -> None:
        """The marker of the producer's transaction was appended to this partition of
        __consumer_offsets: what it committed for groups there holds from now on, or is dropped.
        """
        self.host.end_transaction(offsets_partition, producer_id, commit=commit)

    def delete_group(self, group_id: str) -> Later[ErrorCode]:
        """DeleteGroups, one of them."""
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
        """OffsetDelete, of partitions that exist."""
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

    # Reads, of what is durable; they never wait.

    def read_error(self, group_id: str) -> ErrorCode:
        """Why nothing can be said about this group; NONE if it can, also if there is none."""
        if self.host.is_closed:
            return ErrorCode.NOT_COORDINATOR
        actor = self.host.actor(group_id)
        if actor is None:
            return self.host.error_without_actor(group_id)
        return ErrorCode.NONE if actor.is_available else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """A group that speaks the classic protocol, to look at; None if it is another or gone."""
        group = self.host.group(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def describe(self, group_id: str) -> GroupDescription | None:
        """The description of a group, None if there is no such group."""
        group = self.host.group(group_id)
        return None if group is None else group.describe()

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The position of a group, None without one."""
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
    """Not a lambda in `sync`: while a group is written down, thousands of commands may wait."""
    return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
