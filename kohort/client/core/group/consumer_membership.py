"""A consumer's membership in the consumer group protocol (KIP-848): when to join, and how to take
over the assignments that the coordinator makes.

No I/O: the heartbeat thread sends the heartbeats, which join, report the member's state, and return
assignments. `ConsumerMembership` sets the `report` to send, and processes the thread's findings.
Partitions that stay assigned are read throughout.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from kohort.client.core.backoff import Backoff
from kohort.client.core.group.actions import (
    Apply,
    FindCoordinator,
    Idle,
    MemberAction,
    Prepare,
    RefreshTopics,
)
from kohort.client.core.group.assignors.assignor import RebalanceProtocol
from kohort.client.core.group.base_membership import BaseMembership, MemberState
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.consumer_heartbeat import JOIN_EPOCH, Report, leave_for
from kohort.client.core.group.heartbeat import (
    Answer,
    Finding,
    FindingKind,
    PartitionsById,
    SendLeave,
)
from kohort.client.core.group.identity import NO_MEMBER, Identity
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.join_reason import JoinReason

TopicIds: TypeAlias = Callable[[], Mapping[str, bytes]]
"""Returns the topic ids in the client's metadata, by topic name."""

_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class ConsumerMembership(BaseMembership):
    """The membership of one consumer in the consumer group protocol, for the consumer's lifetime.
    `Identity.generation` is the member epoch.
    """

    mode: Final = RebalanceProtocol.COOPERATIVE
    is_leader: Final = False
    watched_topics: Collection[str] = ()

    def __init__(
        self,
        config: MembershipConfig,
        *,
        subscription: Subscription,
        backoff: Backoff,
        topic_ids: TopicIds,
        new_id: Callable[[], str],
    ) -> None:
        """`new_id` makes a member id (KIP-1082)."""
        super().__init__(config, subscription=subscription, backoff=backoff)
        self.report = Report()
        """The state that the heartbeats report."""
        self._topic_ids = topic_ids
        self._new_id = new_id
        self._member_id = new_id()
        self._is_rejected = False
        """Whether to back off before joining again."""
        self._is_lost = False
        """Whether to call the listener's on_lost for all partitions."""
        self._target: PartitionsById | None = None
        """The assignment to take over; None if the last assignment has been taken over."""
        self._resolve_ms = 0
        self._is_first = True
        self._next: Apply | None = None
        self._revoked_epoch = JOIN_EPOCH
        """The member epoch in which partitions were last revoked."""

    # Actions.

    def next_action(self, now_ms: int) -> MemberAction:
        """Return the action to execute now. If a poll has to raise an error, raise it instead."""
        if self._errors.is_due:
            self._errors.raise_next()
        if self._next is not None:
            return self._next
        if not self._subscription.is_by_group:
            return Idle()
        if self._is_lost and self._subscription.assigned:
            return Prepare(revoked=None, lost=self._subscription.assigned, kept=_NOTHING)
        return self._next_as_member(now_ms)

    def _next_as_member(self, now_ms: int) -> MemberAction:
        if self._is_rejected:
            self._is_rejected = False
            self._wait_until_ms = now_ms + self._backoff.fail()
        if self._wait_until_ms > now_ms:
            return Idle(self._wait_until_ms)
        if not self._is_coordinator_known:
            return FindCoordinator()
        if self.state is MemberState.UNJOINED:
            if self._subscription.pattern is not None and not self._are_topics_fresh:
                return RefreshTopics()
            self._join()
        self._update_report()
        return Idle() if self._target is None else self._reconcile(self._target, now_ms)

    def _join(self) -> None:
        self.state = MemberState.JOINING
        self.identity = Identity(JOIN_EPOCH, self._member_id)
        self._is_lost = False
        self._is_first = True
        self._revoked_epoch = JOIN_EPOCH
        self.report = Report(self._subscription.topics, self._subscription.broker_pattern)

    def _update_report(self) -> None:
        report, subscription = self.report, self._subscription
        wanted = subscription.topics, subscription.broker_pattern
        if wanted != (report.topics, report.broker_pattern):
            self._want(JoinReason.SUBSCRIPTION_CHANGE, "subscription changed")
            self.report = report._replace(topics=wanted[0], broker_pattern=wanted[1])
        if self._rejoin is not report.rejoin:
            self.report = self.report._replace(rejoin=self._rejoin)

    def _reconcile(self, target: PartitionsById, now_ms: int) -> MemberAction:
        names = {topic_id: name for name, topic_id in self._topic_ids().items()}
        resolved = frozenset(entry for entry in target if entry[0] in names)
        assigned = frozenset(TopicPartition(names[entry[0]], entry[1]) for entry in resolved)
        owned = self._subscription.assigned
        if assigned != owned or self._is_first:
            self.state = MemberState.RECONCILING
            self._next = Apply(owned - assigned, assigned, assigned - owned)
            return self._next
        self.report = self.report._replace(owned=resolved)
        if len(resolved) == len(target):
            self._target = None
            self._resolve_ms = 0
            self.state = MemberState.STABLE
            return Idle()
        # The metadata lacks an assigned topic, which may just have been created.
        if now_ms < self._resolve_ms:
            return Idle(self._resolve_ms)
        self._resolve_ms = now_ms + self._backoff.fail()
        return RefreshTopics()

    # Results of actions.

    def prepared(self) -> None:
        """Record that the listener's on_lost was called."""
        self._is_lost = False

    def applied(self) -> None:
        """Record that the assignment was applied; `next_action` adds it to the report."""
        if self._next is None:
            return
        if self._next.revoked:
            self._revoked_epoch = self.identity.generation
        self._next = None
        self._is_first = False

    # Other events.

    def findings(self, findings: Iterable[Finding]) -> None:
        """Process the heartbeat thread's findings; skip those about an earlier member id."""
        for kind, identity, code, message, answer in findings:
            if kind is FindingKind.COORDINATOR_LOST:
                self._is_coordinator_known = False
            elif identity.member_id != self.identity.member_id:
                continue
            elif answer is not None:
                self._answered(answer)
            elif kind is FindingKind.REFUSED:
                self._errors.refuse("heartbeat", code)
            elif kind is FindingKind.FENCED:
                self._lose(code.name)
                self._errors.fence("heartbeat", code)
            elif kind in {FindingKind.REJECTED, FindingKind.LOCKED_OUT}:
                self._lose(code.name)
                self._errors.refuse(f"heartbeat ({message})" if message else "heartbeat", code)
                self._is_rejected = True
            else:
                self._lose(code.name if code else "max.poll.interval.ms exceeded")

    def metadata_updated(self, partition_counts: Mapping[str, int]) -> None:
        """Do nothing: the coordinator watches the topics."""

    def leave(self, reason: str, *, leaves: bool | None = None) -> SendLeave | None:
        """End the membership; return the leaving heartbeat to send, None if there is none.

        Args:
            leaves: whether to leave for good (KIP-1092). By default dynamic members do; static
                members, expected to return, keep their partitions until the session timeout.
        """
        identity, is_static = self.identity, self.config.group_instance_id is not None
        is_known = identity.is_valid and self._is_coordinator_known
        self._lose("")
        self._is_lost = False
        self._member_id = self._new_id()
        self._rejoin = self._first_rejoin()
        if not is_known or (leaves is False and not is_static):
            return None
        return leave_for(identity, reason, returns=is_static and not leaves)

    def lost(self, sent: Identity, *, keeps_id: bool, why: str) -> bool:  # noqa: ARG002
        """End the membership if the member's identity is still `sent`, which the broker rejected.
        Otherwise do nothing, and return False.
        """
        if sent != self.identity:
            return False
        self._lose(why)
        return True

    def rebalance_noticed(self, sent: Identity) -> None:
        """Do nothing: this protocol has no REBALANCE_IN_PROGRESS."""

    def is_pending(self, action: Apply) -> bool:
        """Whether this assignment has not been applied yet."""
        return self._next is action

    def renewed(self, requested: Identity) -> Identity | None:
        """Return the present identity, for a commit that was requested under `requested`; None if
        the commit's partitions may have had another owner meanwhile.
        """
        if requested == self.identity:
            return requested
        is_same = self.is_member and requested.member_id == self.identity.member_id
        return self.identity if is_same and requested.generation > self._revoked_epoch else None

    # State for observers.

    @property
    def is_member(self) -> bool:
        """Whether this consumer has joined, so that the group assigns to it."""
        return self.state in {MemberState.RECONCILING, MemberState.STABLE}

    may_commit = is_member

    @property
    def is_settled(self) -> bool:
        """Whether this consumer has joined and applied its whole assignment."""
        return self.state is MemberState.STABLE and self._target is None

    # Internals.

    def _answered(self, answer: Answer) -> None:
        self.identity = answer.identity
        self.trouble = ""
        if answer.stated is not None:
            if self._rejoin == answer.stated:
                self._rejoin = None
            if self.report.rejoin == answer.stated:
                self.report = self.report._replace(rejoin=None)
        if self.state is MemberState.JOINING:
            self._backoff.succeed()
            self.state = MemberState.STABLE
            self.has_joined = True
            self._are_topics_fresh = False
        if answer.assignment is not None:
            self._target = answer.assignment
            self.state = MemberState.RECONCILING

    def _lose(self, why: str) -> None:
        self.state = MemberState.UNJOINED
        self.identity = NO_MEMBER
        self.report = Report()
        self._target = self._next = None
        self._is_lost = True
        self._want(JoinReason.MEMBERSHIP_LOST, why)
