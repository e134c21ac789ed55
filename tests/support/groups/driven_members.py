"""Consumers without sockets: the client's membership rules against the coordinator's own group.

Both sides are the real rules. What is made up is only the wire, which here takes no time, and the
application, which notes what its listener is told.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from kohort.broker.handlers.classic_groups import RESPONDERS, _respond_to_sync
from kohort.client.core.backoff import Backoff
from kohort.client.core.group.actions import (
    Apply,
    Assign,
    FindCoordinator,
    Idle,
    Join,
    MemberAction,
    Prepare,
    RefreshTopics,
    Sync,
)
from kohort.client.core.group.assignors import ASSIGNORS
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.heartbeat import (
    HeartbeatRules,
    LookUpCoordinator,
    SendHeartbeat,
    SendLeave,
)
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.membership import Membership
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.partitions import TopicPartition
from kohort.groups.reasons import state_reason
from kohort.groups.requests import (
    JoinRequest,
    JoinResult,
    LeaveEntry,
    SyncRequest,
)
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.groups.scenario import MINUTE, SECOND, Scenario, Ticket

SESSION_MS = 10 * SECOND
POLL_INTERVAL_MS = MINUTE

joined, synced = RESPONDERS[9], _respond_to_sync
Share = frozenset[TopicPartition]
Call = tuple[str, tuple[TopicPartition, ...]]


def join_request(request: m.JoinGroupRequest, client_id: str) -> JoinRequest:
    return JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host="/127.0.0.1",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((offer.name, bytes(offer.metadata)) for offer in request.protocols),
        can_skip_assignment=True,
        reason=state_reason(request.join_reason, request.reason),
    )


def sync_request(request: m.SyncGroupRequest) -> SyncRequest:
    return SyncRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={one.member_id: bytes(one.assignment) for one in request.assignments},
    )


class DrivenMember:
    """One process. `run` lets it do what it can do at this moment."""

    def __init__(
        self,
        scenario: Scenario,
        *topics: str,
        strategy: Sequence[str] = ("cooperative-sticky",),
        instance_id: str | None = None,
        **config: Any,  # noqa: ANN401 - fields of MembershipConfig.
    ) -> None:
        self.scenario = scenario
        self.subscription = Subscription()
        self.subscription.subscribe(topics)
        self.calls: list[Call] = []
        """What the rebalance listener was told."""
        self.joins: list[m.JoinGroupRequest] = []
        self.is_polling = True
        self.is_cut_off = False
        """No request gets through, and no answer comes back."""
        self.odd_answers: deque[ErrorCode] = deque()
        """What its next requests are answered, by a coordinator that does nothing else."""
        settings = MembershipConfig(
            "g", instance_id, SESSION_MS, 3 * SECOND, POLL_INTERVAL_MS, **config
        )
        self.membership = Membership(
            settings,
            assignors=[ASSIGNORS[name]() for name in strategy],
            subscription=self.subscription,
            backoff=Backoff(100, 1000, lambda: 0.5),
        )
        self.heartbeats = HeartbeatRules(settings, Backoff(100, 1000, lambda: 0.5))
        self._waiting: tuple[Join | Sync, Ticket] | None = None

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.subscription.assigned

    @property
    def is_settled(self) -> bool:
        return self.membership.state is MemberState.STABLE and self._waiting is None

    def run(self) -> None:
        """Heartbeat if it is time, then poll until there is nothing to do but wait."""
        now_ms = self.scenario.ms
        self._beat(now_ms)
        if not self.is_polling:
            return
        self.heartbeats.polled(now_ms)
        for _ in range(50):
            self.membership.findings(self.heartbeats.take_findings())
            if self._waiting is not None and not self._take_answer():
                return
            action = self.membership.next_action(now_ms)
            if isinstance(action, Idle):
                return
            self._do(action)
        raise AssertionError("never comes to rest")

    def leave(self) -> None:
        leave = self.membership.leave("done")
        self.heartbeats.end()
        if leave is not None and not self.is_cut_off:
            self.scenario.leave(LeaveEntry(leave.identity.member_id))
        self._waiting = None
        self.subscription.unsubscribe()

    # Actions.

    def _do(self, action: MemberAction) -> None:
        match action:
            case FindCoordinator():
                self._find_coordinator()
            case RefreshTopics():
                self.subscription.match(self.scenario.partition_counts)
                self.membership.topics_refreshed()
            case Prepare(revoked, lost, kept):
                self._prepare(revoked, lost, kept)
            case Join(_, request):
                self.heartbeats.end()
                self.joins.append(request)
                self._send(action, lambda: self._join(request))
            case Assign(assignor, members, topics):
                known = self.scenario.partition_counts
                counts = {topic: known[topic] for topic in topics if topic in known}
                assignment = assignor.assign(counts, members) if assignor else {}
                self.membership.assigned(assignment, counts)
            case Sync(_, request):
                self._send(action, lambda: self._sync(request))
            case Apply(revoked, assigned, added):
                if revoked:
                    self._call("revoked", revoked)
                self.subscription.assigned = assigned
                self._call("assigned", added)
                self.membership.applied()
            case Idle():
                pass

    def _find_coordinator(self) -> None:
        if self.is_cut_off:
            self.membership.coordinator_failed(ErrorCode.NETWORK_EXCEPTION, self.scenario.ms)
        else:
            self.membership.coordinator_found()

    def _prepare(self, revoked: Share | None, lost: Share, kept: Share) -> None:
        if revoked is not None:
            self._call("revoked", revoked)
        if lost:
            self._call("lost", lost)
        self.subscription.assigned = kept
        self.membership.prepared()

    def _call(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        self.calls.append((name, tuple(sorted(partitions))))

    def _send(self, action: Join | Sync, send: Any) -> None:  # noqa: ANN401
        if self.odd_answers:
            self._refuse(action, self.odd_answers.popleft())
        else:
            self._waiting = (action, self.scenario.ticket() if self.is_cut_off else send())

    def _refuse(self, action: Join | Sync, code: ErrorCode) -> None:
        now_ms = self.scenario.ms
        if isinstance(action, Join):
            self.membership.join_answered(action.identity, joined(JoinResult(code)), now_ms)
        else:
            refused = m.SyncGroupResponse(error_code=code, assignment=b"")
            self.membership.sync_answered(action.identity, refused, now_ms)

    def _join(self, request: m.JoinGroupRequest) -> Ticket:
        scenario, ticket = self.scenario, self.scenario.ticket()
        asked = join_request(request, "driven")
        scenario.step(lambda: scenario.classic.join(asked, ticket, scenario.now))
        return ticket

    def _sync(self, request: m.SyncGroupRequest) -> Ticket:
        scenario, ticket = self.scenario, self.scenario.ticket()
        asked = sync_request(request)
        scenario.step(lambda: scenario.classic.sync(asked, ticket, scenario.now))
        return ticket

    def _take_answer(self) -> bool:
        assert self._waiting is not None
        action, ticket = self._waiting
        now_ms = self.scenario.ms
        if self.is_cut_off:
            # The connection breaks at once; who waited for an answer does not get it.
            self._waiting = None
            if isinstance(action, Join):
                self.membership.join_failed(action.identity, now_ms)
            else:
                self.membership.sync_failed(action.identity, now_ms)
            return True
        if ticket.is_parked:
            return False
        self._waiting = None
        if isinstance(action, Join):
            self.membership.join_answered(action.identity, joined(ticket.answer), now_ms)
            if self.membership.state is MemberState.COMPLETING_REBALANCE:
                self.heartbeats.begin(self.membership.identity, now_ms)
        else:
            self.membership.sync_answered(action.identity, synced(ticket.answer), now_ms)
        return True

    def _beat(self, now_ms: int) -> None:
        for _ in range(3):
            match self.heartbeats.next_action(now_ms):
                case SendHeartbeat(identity):
                    if self.is_cut_off:
                        self.heartbeats.failed(now_ms)
                    else:
                        self.heartbeats.answered(identity, self._ask(identity), now_ms)
                case LookUpCoordinator():
                    code = ErrorCode.NETWORK_EXCEPTION if self.is_cut_off else ErrorCode.NONE
                    self.heartbeats.found_coordinator(code, now_ms)
                case SendLeave(identity):
                    if not self.is_cut_off:
                        self.scenario.leave(LeaveEntry(identity.member_id))
                case _:
                    return

    def _ask(self, identity: Identity) -> ErrorCode:
        if self.odd_answers:
            return self.odd_answers.popleft()
        instance = self.membership.config.group_instance_id
        return self.scenario.heartbeat(identity.member_id, identity.generation, instance=instance)


def live(scenario: Scenario, members: Sequence[DrivenMember], duration_ms: int) -> None:
    """Let everybody do what it has to for so long, 100 ms at a time."""
    for _ in range(duration_ms // 100):
        for member in members:
            member.run()
        scenario.advance(100)
    for member in members:
        member.run()
