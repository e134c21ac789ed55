"""The group coordinator: routes each request to its group.

Guarantees: all groups are loaded before the first request is served; a group's requests are
executed in the order of arrival; every request is answered exactly once, even when the broker
stops.
"""

import logging
from collections.abc import Awaitable, Sequence

from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.host import CoordinatorConfig, GroupHost, GroupObserver
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.offsets.commit import error_without_group
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    DeleteOffsetsResult,
    EnclosingTransaction,
    TopicPartition,
)
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

__all__ = ["CoordinatorConfig", "GroupCoordinator", "GroupObserver"]


class GroupCoordinator:
    """Executes the requests to groups of all kinds. `host` has the groups themselves."""

    def __init__(self, host: GroupHost) -> None:
        self.host = host

    # Requests. A returned ticket is answered later.

    def commit(
        self, group_id: str, request: CommitRequest, *, may_answer_group_not_found: bool
    ) -> Deferred[CommitResult]:
        """Execute an OffsetCommit; `may_answer_group_not_found` is true for requests from v9 on."""
        ticket: Deferred[CommitResult] = Deferred()
        error = error_without_group(request, may_answer_group_not_found=may_answer_group_not_found)
        command = Command(
            lambda group, now: group.commit(request, ticket, now),
            ticket,
            answer_absent=CommitResult((error,) * len(request.offsets)) if error else None,
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
    ) -> Deferred[CommitResult]:
        """Execute a TxnOffsetCommit of a transaction that includes the group's log partition;
        `may_answer_group_not_found` is true for requests from v6 on.
        """
        ticket: Deferred[CommitResult] = Deferred()
        absent = error_without_group(request, may_answer_group_not_found=may_answer_group_not_found)

        def check() -> ErrorCode:
            error = transaction.check()
            if not error:
                self.host.note_pending(group_id, transaction.producer_id)
            return error

        checked = transaction._replace(check=check)
        command = Command(
            lambda group, now: group.commit_in_transaction(request, checked, ticket, now),
            ticket,
            answer_absent=CommitResult((absent,) * len(request.offsets)) if absent else None,
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
        """Return the partition of __consumer_offsets that holds the group's offsets."""
        return self.host.partition_of(group_id)

    def end_transaction(self, offsets_partition: int, producer_id: int, *, commit: bool) -> None:
        """Apply the transaction marker that was appended to this partition of __consumer_offsets:
        the offsets that the producer committed for groups there become valid, or are dropped.
        """
        self.host.end_transaction(offsets_partition, producer_id, commit=commit)

    def delete_group(self, group_id: str) -> Deferred[ErrorCode]:
        ticket: Deferred[ErrorCode] = Deferred()
        command = Command(
            lambda group, _: group.delete(ticket),
            ticket,
            answer_absent=ErrorCode.GROUP_ID_NOT_FOUND,
            is_exclusive=True,
        )
        self.host.submit(group_id, command)
        return ticket

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Deferred[DeleteOffsetsResult]:
        ticket: Deferred[DeleteOffsetsResult] = Deferred()
        if not group_id:
            ticket.set_result(DeleteOffsetsResult(ErrorCode.INVALID_GROUP_ID))
            return ticket
        command = Command(
            lambda group, _: group.delete_offsets(partitions, ticket),
            ticket,
            answer_absent=DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND),
            is_exclusive=True,
        )
        self.host.submit(group_id, command)
        return ticket

    # Reads of durable state; they never wait.

    def read_error(self, group_id: str) -> ErrorCode:
        """Return the error for reads of this group; NONE if it is loaded or does not exist."""
        return self.host.read_error(group_id)

    def validate_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return whether offsets of the group may be read by this member, or by a client without
        membership (None, -1): NONE, or the error.
        """
        error = self.read_error(group_id)
        group = None if error else self.host.group(group_id)
        return error if group is None else group.validate_fetch(member_id, member_epoch)

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a group's committed offset, None if there is none."""
        group = self.host.group(group_id)
        return None if group is None else group.committed(topic, partition)

    async def _submit_when(
        self,
        prepared: Awaitable[None],
        group_id: str,
        command: Command,
        ticket: Deferred[CommitResult],
    ) -> None:
        try:
            await prepared
        except KafkaError as error:
            logger.warning("The groups' log cannot be created: %s", error)
            ticket.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self.host.submit(group_id, command)
