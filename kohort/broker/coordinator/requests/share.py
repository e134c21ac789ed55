"""The requests that exist only for share groups (KIP-932): heartbeats, and changes of offsets."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.host import GroupHost
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.member_sessions import HeartbeatResult, Rejected
from kohort.groups.requests import Now, Ticket
from kohort.groups.share.heartbeat import LEAVING, check_request
from kohort.groups.share.membership import ShareMembership
from kohort.groups.share.records import StoredTopic
from kohort.groups.share.requests import OffsetsResult, ShareHeartbeatRequest
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

NOT_FOUND: Final = ErrorCode.GROUP_ID_NOT_FOUND


def not_found(group_id: str, group: Group | None) -> str:
    """Return the error message for a group that is not a share group; `group` is None if the group
    does not exist.
    """
    if group is None or group.is_dead or is_unused(group):
        return f"Group {group_id} not found."
    return f"Group {group_id} is not a share group."


def is_unused(group: Group) -> bool:
    """Whether a group has neither a membership nor offsets, so that it may become a share group."""
    offsets = group.offsets
    return group.membership is None and not (offsets.count or offsets.has_pending)


class ShareRequests:
    """Executes the requests of share groups."""

    def __init__(
        self,
        host: GroupHost,
        prepare_state: Callable[[], Awaitable[None] | None],
        initializing: Callable[[str], Deferred[None] | None],
    ) -> None:
        """`prepare_state` creates the topic that stores the state of share-partitions; None if it
        exists. `initializing` returns a `Deferred` that completes when the state of a group's
        partitions exists, None if it exists already.
        """
        self._host = host
        self._prepare_state = prepare_state
        self._initializing = initializing

    def heartbeat(
        self, group_id: str, request: ShareHeartbeatRequest
    ) -> HeartbeatResult | Deferred[HeartbeatResult]:
        """Execute a ShareGroupHeartbeat. Raises KafkaError: NOT_COORDINATOR, or
        COORDINATOR_NOT_AVAILABLE.
        """
        host = self._host
        try:
            check_request(group_id, request)
        except Rejected as rejected:
            return rejected.result
        error = host.read_error(group_id)
        if error:
            raise KafkaError(error)
        membership, actor = host.membership(group_id, ShareMembership), host.actor(group_id)
        if membership is not None and actor is not None:
            result = membership.answer_at_once(request, host.monotonic_ms())
            if result is not None:
                if membership.data.outbox.has_ready_effects:
                    actor.apply_ready_effects()
                return result
        ticket: Deferred[HeartbeatResult] = Deferred()
        command = Command(
            lambda group, now: _heartbeat(host, group, request, ticket, now),
            ticket,
            answer_absent=_absent(group_id, None, request),
            creates_group=request.epoch == 0,
            is_exclusive=True,
        )
        self._submit(group_id, command)
        return self._when_initialized(group_id, ticket)

    def _when_initialized(
        self, group_id: str, ticket: Deferred[HeartbeatResult]
    ) -> Deferred[HeartbeatResult]:
        """Return the answer to a heartbeat, delayed until the state of new partitions exists."""
        answer: Deferred[HeartbeatResult] = Deferred()

        def answered(ticket: Deferred[HeartbeatResult]) -> None:
            if ticket.error is not None:
                answer.set_exception(ticket.error)
                return
            result = ticket.result()
            initializing = self._initializing(group_id)
            if initializing is None:
                answer.set_result(result)
            else:
                initializing.add_done_callback(lambda _: answer.set_result(result))

        ticket.add_done_callback(answered)
        # If the client disconnects, `answer` is cancelled, and nothing else waits for the ticket.
        answer.add_done_callback(lambda _: ticket.cancel())
        return answer

    def alter_offsets(
        self,
        group_id: str,
        topics: Mapping[bytes, StoredTopic],
        alter: Callable[[int], Steps[None]],
    ) -> Deferred[OffsetsResult]:
        """Execute an AlterShareGroupOffsets, which creates the group unless there is nothing to
        alter; see `ShareMembership.alter_offsets`.
        """
        ticket: Deferred[OffsetsResult] = Deferred()

        def step(group: Group, now: Now) -> Steps[None] | None:
            membership = group.membership
            if isinstance(membership, ShareMembership) and not group.is_dead:
                return membership.alter_offsets(topics, alter, ticket, now)
            if is_unused(group) and not group.is_dead:
                new = _new_membership(self._host, group)
                return new.alter_offsets(topics, alter, ticket, now, begins=group)
            message = not_found(group_id, group)
            group.outbox.reply(ticket, OffsetsResult(NOT_FOUND, message))
            return None

        command = Command(
            step,
            ticket,
            answer_absent=OffsetsResult(),
            creates_group=bool(topics),
            is_exclusive=True,
        )
        self._submit(group_id, command)
        return ticket

    def delete_offsets(self, group_id: str, topic_ids: Sequence[bytes]) -> Deferred[OffsetsResult]:
        """Execute a DeleteShareGroupOffsets; see `ShareMembership.delete_offsets`."""
        ticket: Deferred[OffsetsResult] = Deferred()

        def step(group: Group, now: Now) -> None:
            membership = group.membership
            if isinstance(membership, ShareMembership) and not group.is_dead:
                membership.delete_offsets(topic_ids, ticket, now)
            else:
                message = not_found(group_id, group)
                group.outbox.reply(ticket, OffsetsResult(NOT_FOUND, message))

        absent = OffsetsResult(NOT_FOUND, not_found(group_id, None))
        command = Command(step, ticket, answer_absent=absent, is_exclusive=True)
        self._host.submit(group_id, command)
        return ticket

    def _submit(self, group_id: str, command: Command) -> None:
        """Submit a command. If it may create a group, first create __share_group_state if missing,
        because the command then initializes the group's share-partitions there.
        """
        preparing = self._prepare_state() if command.creates_group else None
        if preparing is None:
            self._host.submit(group_id, command)
        else:
            work = self._submit_when(preparing, group_id, command)
            self._host.start_task(work, f"share group {group_id}")

    async def _submit_when(
        self, prepared: Awaitable[None], group_id: str, command: Command
    ) -> None:
        try:
            await prepared
        except KafkaError as error:
            logger.warning("Cannot create __share_group_state: %s", error)
            assert command.ticket is not None
            command.ticket.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._host.submit(group_id, command)


def _heartbeat(
    host: GroupHost, group: Group, request: ShareHeartbeatRequest, ticket: Ticket, now: Now
) -> Steps[None] | None:
    membership = group.membership
    if isinstance(membership, ShareMembership) and not group.is_dead:
        return membership.heartbeat(request, ticket, now)
    if request.epoch == 0 and is_unused(group) and not group.is_dead:
        return _new_membership(host, group).heartbeat(request, ticket, now, begins=group)
    group.outbox.reply(ticket, _absent(group.group_id, group, request))
    return None


def _absent(group_id: str, group: Group | None, request: ShareHeartbeatRequest) -> HeartbeatResult:
    message = not_found(group_id, group)
    if request.epoch > LEAVING and message.endswith("not found."):
        message = f"Share {message[0].lower()}{message[1:]}"
    return HeartbeatResult(NOT_FOUND, message)


def _new_membership(host: GroupHost, group: Group) -> ShareMembership:
    membership = host.new_membership[GroupKind.SHARE](group)
    assert isinstance(membership, ShareMembership)
    return membership
