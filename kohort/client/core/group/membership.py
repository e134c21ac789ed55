"""A consumer's group membership: when to join, with what, and what the responses mean.

No I/O. The consumer calls `next_action`, performs it, and reports the result, one action at a time;
other events (findings of the heartbeat thread, new metadata, a forced rebalance) may arrive in
between.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import (
    InconsistentProtocolError,
    is_refusal,
)
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
from kohort.client.core.group.assignors.assignor import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    common_mode,
)
from kohort.client.core.group.base_membership import BaseMembership, MemberState
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.heartbeat import Finding, FindingKind, SendLeave
from kohort.client.core.group.identity import NO_MEMBER, Identity
from kohort.client.core.group.leading import Handover, WatchedTopics, held_back
from kohort.client.core.group.requests import (
    PROTOCOL_TYPE,
    decode_member,
    decode_share,
    join_request,
    sync_request,
)
from kohort.client.core.group.subscription import Subscription, SubscriptionKind
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from kohort.protocol.messages.membership import JoinGroupResponse, SyncGroupResponse


class Membership(BaseMembership):
    """The membership of one consumer in the classic protocol, for the consumer's lifetime."""

    def __init__(
        self,
        config: MembershipConfig,
        *,
        assignors: Sequence[Assignor],
        subscription: Subscription,
        backoff: Backoff,
    ) -> None:
        """`assignors` are in order of preference."""
        super().__init__(config, subscription=subscription, backoff=backoff)
        self.mode = common_mode(assignors)
        self.is_leader = False
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_prepared = False
        self._joined_topics: frozenset[str] = frozenset()
        self._known_topics: frozenset[str] | None = None
        """The last subscription of a static member that has lost its membership."""
        self._watched = WatchedTopics()
        self._handover = Handover(config.max_poll_interval_ms)
        self._next: Assign | Sync | Apply | None = None
        """The rebalance's next step: assign, send a SyncGroup, or apply; None if none is due."""

    # Actions.

    def next_action(self, now_ms: int) -> MemberAction:
        """Return the next action, which the consumer then performs.

        Raises:
            FencedInstanceError: another process uses this member's instance id. Raised every time.
            ConsumerError: the group rejects this member, for example with an AuthorizationError.
                Raised once; the next call retries, because the request may be allowed by then.
        """
        if self._errors.is_due:
            self._errors.raise_next()
        if isinstance(self._next, Apply):
            return self._next
        if not self._subscription.is_by_group:
            return Idle()
        if self._wait_until_ms > now_ms:
            return Idle(self._wait_until_ms)
        if not self._is_coordinator_known:
            return FindCoordinator()
        if self._next is not None:
            return self._next
        return self._next_join(now_ms)

    def _next_join(self, now_ms: int) -> MemberAction:
        topics = self._subscription.topics
        if self.state is MemberState.STABLE and topics != self._joined_topics:
            self._want(JoinReason.SUBSCRIPTION_CHANGE, "subscription changed")
        if self.state is MemberState.STABLE and (count := self._handover.take_overdue(now_ms)):
            text = f"partitions that their owners did not give up in time: {count}"
            self._want(JoinReason.PARTITIONS_REVOKED, text)
        if self._rejoin is None:
            return Idle(self._handover.due_ms)
        if self._subscription.kind is SubscriptionKind.PATTERN and not self._are_topics_fresh:
            return RefreshTopics()
        if not self._is_prepared:
            return self._preparation()
        self.state = MemberState.PREPARING_REBALANCE
        self._joined_topics = topics
        request = join_request(
            self.config, self.identity, self._assignors.values(), self._subscription, self._rejoin
        )
        return Join(self.identity, request)

    def _preparation(self) -> Prepare:
        owned = self._subscription.assigned
        nothing: frozenset[TopicPartition] = frozenset()
        if not self.identity.is_valid:
            return Prepare(revoked=None, lost=owned, kept=nothing)
        if self.mode is RebalanceProtocol.EAGER:
            return Prepare(revoked=owned, lost=nothing, kept=nothing)
        kept = frozenset(tp for tp in owned if self._subscription.wants(tp.topic))
        return Prepare(revoked=owned - kept or None, lost=nothing, kept=kept)

    # Results of actions.

    def round_failed(self, now_ms: int) -> None:
        super().round_failed(now_ms)
        if self.state is MemberState.PREPARING_REBALANCE:
            self.state = MemberState.UNJOINED

    def prepared(self) -> None:
        """Record that the partitions to revoke before the join have been revoked."""
        self._is_prepared = True
        self.is_leader = False

    def join_answered(self, sent: Identity, response: JoinGroupResponse, now_ms: int) -> None:
        if self.state is not MemberState.PREPARING_REBALANCE:
            return  # The consumer has left meanwhile.
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self._joined(response)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.state = MemberState.UNJOINED
            self.identity = Identity(member_id=response.member_id)
        else:
            self.state = MemberState.UNJOINED
            self._failed("JoinGroup", sent, code, now_ms)

    def join_failed(self, sent: Identity, now_ms: int) -> None:
        """Process a lost connection or a timeout of a JoinGroup."""
        if self.state is MemberState.PREPARING_REBALANCE:
            self.state = MemberState.UNJOINED
            self._failed("JoinGroup", sent, ErrorCode.NETWORK_EXCEPTION, now_ms)

    def assigned(self, assignment: Assignment, partition_counts: Mapping[str, int]) -> None:
        """Record the assignment that this member, the leader, made; empty without an assignor."""
        if isinstance(self._next, Assign):
            self._watched.assigned(partition_counts)
            if self._next.assignor is not None:
                self._handover.assigned(held_back(self._next.members, assignment, partition_counts))
            self._next = self._sync(assignment)

    def sync_answered(self, sent: Identity, response: SyncGroupResponse, now_ms: int) -> None:
        if sent != self.identity or not isinstance(self._next, Sync):
            return  # No longer a member, or in another generation: the assignment is void.
        self._next = None
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self._failed("SyncGroup", sent, code, now_ms)
        elif response.protocol_name not in {None, self.identity.protocol_name}:
            self._errors.refuse_protocol(response.protocol_name)
        else:
            self._handover.synced(now_ms)
            self._synced(response.assignment)

    def sync_failed(self, sent: Identity, now_ms: int) -> None:
        """Process a lost connection or a timeout of a SyncGroup."""
        if sent == self.identity and isinstance(self._next, Sync):
            self._next = None
            self._failed("SyncGroup", sent, ErrorCode.NETWORK_EXCEPTION, now_ms)

    def applied(self) -> None:
        """Record that the new assignment has been applied."""
        if isinstance(self._next, Apply):
            assigned, self._next = self._next.assigned, None
            chosen = self._assignors.get(self.identity.protocol_name or "")
            if chosen is not None:
                chosen.on_assignment(sorted(assigned), self.identity.generation)

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.protocol_type not in {None, PROTOCOL_TYPE}:
            self._errors.refuse_protocol(response.protocol_type)
            return
        chosen = self._assignors.get(response.protocol_name or "")
        if chosen is None:
            self._errors.refuse_protocol(response.protocol_name)
            return
        self._backoff.succeed()
        self.trouble = ""
        self.has_joined = True
        self.identity = Identity(response.generation_id, response.member_id, chosen.name)
        self.state = MemberState.COMPLETING_REBALANCE
        self.is_leader = response.leader == response.member_id
        self._watched.clear()
        self._handover.joined(response.generation_id, is_leader=self.is_leader)
        if not self.is_leader:
            self._next = self._sync({})
            return
        members = [decode_member(member) for member in response.members]
        topics = frozenset(topic for member in members for topic in member.topics)
        self._next = Assign(None if response.skip_assignment else chosen, members, topics)

    def _sync(self, assignment: Assignment) -> Sync:
        return Sync(self.identity, sync_request(self.config, self.identity, assignment))

    def _synced(self, share: bytes) -> None:
        try:
            assigned = frozenset(decode_share(share))
        except InconsistentProtocolError as error:
            self._errors.refuse_for(error)
            return
        self.state = MemberState.STABLE
        self.trouble = ""
        self._rejoin = None
        self._is_prepared = False
        self._are_topics_fresh = False
        self._want_if_changed(self._watched.changed_meanwhile())
        unwanted = {tp.topic for tp in assigned if not self._subscription.wants(tp.topic)}
        if unwanted:
            self._want(
                JoinReason.SUBSCRIPTION_CHANGE,
                f"assigned topics that are not subscribed to: {', '.join(sorted(unwanted))}",
            )
            return
        known, self._known_topics = self._known_topics, None
        if known is not None and not self._joined_topics <= known:
            # A returning static member gets its old assignment, which lacks topics added to its
            # subscription.
            self._want(JoinReason.SUBSCRIPTION_CHANGE, "subscription changed")
        owned = self._subscription.assigned
        revoked = owned - assigned
        if revoked:
            count = "a partition" if len(revoked) == 1 else f"{len(revoked)} partitions"
            self._want(JoinReason.PARTITIONS_REVOKED, f"gave up {count}")
        self._next = Apply(revoked, assigned, assigned - owned)

    # Other events.

    def findings(self, findings: Iterable[Finding]) -> None:
        """Process the heartbeat thread's findings. Those about a former identity are skipped,
        except COORDINATOR_LOST.
        """
        for kind, identity, code, *_ in findings:
            if kind is FindingKind.COORDINATOR_LOST:
                self._is_coordinator_known = False
            elif identity != self.identity:
                continue
            elif kind is FindingKind.REBALANCING:
                if self.state is MemberState.STABLE:
                    self._want(JoinReason.GROUP_REBALANCING, "group is rebalancing")
            elif kind is FindingKind.FENCED:
                self._fence("heartbeat", code)
            elif kind is FindingKind.REFUSED:
                self._errors.refuse("heartbeat", code)
            elif kind is FindingKind.LOCKED_OUT:
                self._lose(identity.without_generation(), code.name)
                self._errors.refuse("heartbeat", code)
            elif kind is FindingKind.GENERATION_LOST:
                self._lose(identity.without_generation(), code.name)
            else:
                self._lose(NO_MEMBER, code.name if code else "max.poll.interval.ms exceeded")

    def metadata_updated(self, partition_counts: Mapping[str, int]) -> None:
        """If this member leads the group, rejoin if the partition counts differ from those on which
        its assignment is based; during a rebalance, store the counts and compare them at its end.
        `partition_counts` lacks topics that do not exist.
        """
        if not self.is_leader:
            return
        if self.state is MemberState.STABLE:
            self._want_if_changed(self._watched.changed(partition_counts))
        else:
            self._watched.keep(partition_counts)

    @property
    def watched_topics(self) -> Collection[str]:
        """The topics of the whole group, whose metadata a leader watches."""
        return self._watched.names

    def leave(self, reason: str, *, leaves: bool | None = None) -> SendLeave | None:
        """End the membership; return the LeaveGroup to send, None if there is none.

        Args:
            leaves: whether to tell the broker (KIP-1092). By default dynamic members do, and static
                members, which are expected to return, do not.
        """
        identity = self.identity
        is_known = bool(identity.member_id) and self._is_coordinator_known
        if leaves is None:
            leaves = self.config.group_instance_id is None
        self._lose(NO_MEMBER, "")
        self._rejoin = self._first_rejoin()
        if not leaves or not is_known:
            return None
        return SendLeave(identity, reason)

    def lost(self, sent: Identity, *, keeps_id: bool, why: str) -> bool:
        """Give up the identity `sent`, which the broker rejected. Return False, and do nothing, if
        the member has another identity by now.
        """
        if sent != self.identity:
            return False
        self._lose(sent.without_generation() if keeps_id else NO_MEMBER, why)
        return True

    def is_pending(self, action: Apply) -> bool:
        """Whether this assignment is still to be applied."""
        return self._next is action

    def renewed(self, requested: Identity) -> Identity | None:
        """Return the identity for sending a commit that was requested under `requested`; None if
        another member may have owned the partitions of the commit meanwhile.
        """
        return requested if requested == self.identity else None

    def rebalance_noticed(self, sent: Identity) -> None:
        """Process a REBALANCE_IN_PROGRESS response."""
        if sent == self.identity and self.state is MemberState.STABLE:
            self._want(JoinReason.GROUP_REBALANCING, "group is rebalancing")

    # State for observers.

    @property
    def is_member(self) -> bool:
        """Whether this consumer has joined its group and got an assignment."""
        return self.state is MemberState.STABLE and self.identity.is_valid

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator might accept a commit now."""
        if self.state is MemberState.STABLE:
            return True
        # The coordinator decides whether commits of retained partitions are still valid.
        is_cooperative = self.mode is RebalanceProtocol.COOPERATIVE
        return self.identity.is_valid and is_cooperative and self.state is not MemberState.UNJOINED

    @property
    def is_settled(self) -> bool:
        """Whether the member has applied its assignment and need not rejoin."""
        return self.state is MemberState.STABLE and self._next is None and self._rejoin is None

    # Internals.

    def _want_if_changed(self, changes: str) -> None:
        if changes:
            self._want(JoinReason.TOPIC_METADATA_CHANGE, f"topic metadata changed: {changes}")

    def _lose(self, identity: Identity, why: str) -> None:
        if self.identity.is_valid and self.config.group_instance_id is not None:
            self._known_topics = self._joined_topics
        self.identity = identity
        self.state = MemberState.UNJOINED
        self.is_leader = False
        self._watched.clear()
        self._next = None
        # The owned partitions are lost, which must be reported to the listener.
        self._is_prepared = False
        self._want(JoinReason.MEMBERSHIP_LOST, why)

    def _failed(self, doing: str, sent: Identity, code: ErrorCode, now_ms: int) -> None:
        """Handle a failed join or sync: rejoin, unless a retry cannot succeed."""
        self.trouble = f"{doing}: {code.name}"
        if code in _COORDINATOR_GONE:
            self._is_coordinator_known = False
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}:
            self._lose(NO_MEMBER, code.name)
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self._lose(sent.without_generation(), code.name)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._want(JoinReason.GROUP_REBALANCING, "group is rebalancing")
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._fence(doing, code)
        else:
            assert self._rejoin is not None
            self._rejoin = self._rejoin.after_failure(f"{doing} failed: {code.name}")
            if is_refusal(code):
                self._errors.refuse(doing, code)
            else:
                self._wait_until_ms = now_ms + self._backoff.fail()

    def _fence(self, doing: str, code: ErrorCode) -> None:
        self._lose(NO_MEMBER, code.name)
        self._errors.fence(doing, code)


_COORDINATOR_GONE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
