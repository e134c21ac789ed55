"""The heartbeat of consumer groups (KIP-848)."""

import base64
from collections.abc import Callable, Sequence
from typing import Final

from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.host import GroupHost
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.consumer.validation import check_request
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.member_sessions import HeartbeatResult, Rejected
from kohort.groups.requests import Now, Ticket
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError


def short_id(number: bytes) -> str:
    """Return a member id: a random number of 16 bytes in base64, as Kafka makes them."""
    return base64.urlsafe_b64encode(number).rstrip(b"=").decode()


class ConsumerRequests:
    """Executes requests of consumer groups; a returned `Deferred` completes later."""

    def __init__(self, host: GroupHost, *, is_enabled: bool, assignors: Sequence[str]) -> None:
        self._host = host
        self._assignors = assignors
        self.is_enabled = is_enabled
        """Whether `group.coordinator.rebalance.protocols` contains `consumer`."""

    def heartbeat(
        self, group_id: str, request: HeartbeatRequest, may_describe: Callable[[str], bool]
    ) -> HeartbeatResult | Deferred[HeartbeatResult]:
        """Execute a ConsumerGroupHeartbeat.

        Args:
            group_id: the group.
            request: `member_id` was sent by the client, or created for it.
            may_describe: whether the client may describe a topic. Regular expressions that are
                resolved because of this request match only such topics.

        Raises:
            KafkaError: NOT_COORDINATOR, or COORDINATOR_NOT_AVAILABLE.
        """
        host = self._host
        try:
            check_request(group_id, request, self._assignors)
        except Rejected as rejected:
            self._note_refused(group_id, request, rejected)
            return rejected.result
        error = host.read_error(group_id)
        if error:
            raise KafkaError(error)
        membership, actor = host.membership(group_id, ConsumerMembership), host.actor(group_id)
        if membership is not None and actor is not None:
            result = membership.answer_at_once(request, host.monotonic_ms())
            if result is not None:
                if membership.data.outbox.has_ready_effects:
                    actor.apply_ready_effects()
                return result
        ticket: Deferred[HeartbeatResult] = Deferred()
        is_small = _is_small(request)
        command = Command(
            lambda group, now: _heartbeat(
                host, group, request, ticket, now, shares_append=is_small
            ),
            ticket,
            answer_absent=_not_found(group_id),
            creates_group=request.epoch == 0,
            is_exclusive=True,
            is_gathered=True,
            shares_append=is_small,
        )
        host.submit(group_id, command)
        if request.topic_regex or (
            membership is not None and membership.needs_resolution(host.monotonic_ms())
        ):
            host.submit(group_id, _resolution(may_describe))
        return ticket

    def _note_refused(self, group_id: str, request: HeartbeatRequest, rejected: Rejected) -> None:
        host = self._host
        membership, actor = host.membership(group_id, ConsumerMembership), host.actor(group_id)
        if membership is None or actor is None or host.is_closed:
            return
        membership.note_refused(request, rejected.result.error, rejected.refusal, host.now())
        if membership.data.outbox.has_ready_effects:
            actor.apply_ready_effects()


SMALL_CHARS: Final = 1_000
"""Maximum characters in a heartbeat that shares an append, so that `SHARING_MAX` such heartbeats
fit in one batch of the log."""


def _is_small(request: HeartbeatRequest) -> bool:
    texts = (request.member_id, request.client_id, request.topic_regex, request.rack_id)
    chars = sum([len(text) for text in texts if text])
    return chars + sum([len(name) + 1 for name in request.topic_names or ()]) <= SMALL_CHARS


def _not_found(group_id: str) -> HeartbeatResult:
    return HeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def _heartbeat(
    host: GroupHost,
    group: Group,
    request: HeartbeatRequest,
    ticket: Ticket,
    now: Now,
    *,
    shares_append: bool,
) -> Steps[None] | None:
    membership = group.membership
    if isinstance(membership, ConsumerMembership) and not group.is_dead:
        return membership.heartbeat(request, ticket, now, shares_append=shares_append)
    if request.epoch != 0 or group.is_dead:
        group.outbox.reply(ticket, _not_found(group.group_id))
        return None
    if membership is None or membership.kind is GroupKind.CLASSIC:
        new = host.new_membership[GroupKind.CONSUMER](group)
        assert isinstance(new, ConsumerMembership)
        return new.heartbeat(request, ticket, now, begins=group)
    message = f"Group {group.group_id} is not a consumer group."
    group.outbox.reply(ticket, HeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND, message))
    return None


def _resolution(may_describe: Callable[[str], bool]) -> Command:
    """Return a command that resolves the regular expressions in a group's subscriptions if that is
    due.
    """

    def step(group: Group, now: Now) -> Steps[None] | None:
        membership = group.membership
        if isinstance(membership, ConsumerMembership) and membership.needs_resolution(now.ms):
            return membership.resolve(may_describe, now)
        return None

    return Command(step, is_exclusive=True)
