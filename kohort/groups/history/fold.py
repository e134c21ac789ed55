"""Groups the events of one group into rebalances.

A rebalance is over when the group is Stable or Empty, or when the next one begins. Its record is
complete a little later: members may sync after the leader, and a member that left may close its
connection, so it stays open until both are known, for at most `SETTLE_MS`. Records of avoided
rebalances wait until then, so that all records are in the order of their sequence.
"""

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from kohort.groups.events import (
    CauseAdded,
    CommitFenced,
    Event,
    GroupRemoved,
    GroupRestored,
    InitialDelayExtended,
    JoinPhaseEnded,
    JoinPhaseStalled,
    JoinReceived,
    MemberFenced,
    MemberReconciled,
    MemberRef,
    MemberRefused,
    MemberRemoved,
    MemberReplaced,
    MemberTold,
    RebalanceAvoided,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
    RemovalReason,
    ShareEpochBumped,
    SharePartitionsAssigned,
    SyncReceived,
    TargetAssigned,
    TriggerKind,
    UnusedIdDropped,
)
from kohort.groups.history.consumers import ConsumerFacts
from kohort.groups.history.facts import (
    AssignedFacts,
    AvoidedFacts,
    Awaited,
    Bumps,
    Cause,
    Departure,
    Holdings,
    RebalanceFacts,
)
from kohort.groups.history.instance_conflicts import InstanceConflicts
from kohort.groups.history.names import AVOIDED_HELD, MemberFate, RebalanceOutcome
from kohort.groups.kinds import EMPTY, GroupKind
from kohort.groups.requests import CONSUMER, Now

SETTLE_MS: Final = 10_000
"""How long a finished rebalance waits for members that have not requested their assignment."""

RESTART_MS: Final = 60_000
"""A restart of the broker may cause rebalances for this long, because members missed their session
timeouts, or reached the broker again only after a while."""

_OF_RESTART: Final = frozenset(
    {
        TriggerKind.SESSION_EXPIRED,
        TriggerKind.REBALANCE_EXPIRED,
        TriggerKind.JOIN_EXPIRED,
        TriggerKind.MEMBER_ADDED,
        TriggerKind.STATIC_ADDED,
        TriggerKind.STATIC_REPLACED,
        TriggerKind.LEADER_REJOINED,
    }
)
"""Causes that a restart of the broker explains. A LeaveGroup is not among them: a restart makes no
member leave."""

Closed: TypeAlias = RebalanceFacts | AvoidedFacts | AssignedFacts

_FATES: Final = {
    RemovalReason.LEFT: MemberFate.LEFT,
    RemovalReason.REMOVED_BY_ADMIN: MemberFate.REMOVED_BY_ADMIN,
    RemovalReason.SESSION_EXPIRED: MemberFate.SESSION_EXPIRED,
    RemovalReason.NEW_MEMBER_EXPIRED: MemberFate.NEW_MEMBER_EXPIRED,
    RemovalReason.REBALANCE_TIMEOUT: MemberFate.REBALANCE_TIMEOUT,
    RemovalReason.SYNC_EXPIRED: MemberFate.SYNC_EXPIRED,
    RemovalReason.SIZE_REFUSED: MemberFate.REFUSED,
}

_OUTCOMES: Final = {
    RebalanceEnd.STABLE: RebalanceOutcome.STABLE,
    RebalanceEnd.EMPTY: RebalanceOutcome.EMPTY,
    RebalanceEnd.STORE_FAILED: RebalanceOutcome.STORE_FAILED,
}


class GroupFold:
    """Combines the events of one group into rebalances."""

    __slots__ = (
        "_assignments",
        "_avoided",
        "_bumps",
        "_conflicts",
        "_departed",
        "_fenced_commits",
        "_is_known",
        "_last_rebalance",
        "_leader",
        "_renamed",
        "_replaced",
        "closed",
        "generation",
        "open",
        "protocol_type",
        "restarted_ms",
        "sequence",
    )

    def __init__(self, sequence: int = 0) -> None:
        """`sequence` is the last sequence number in the history of this group."""
        self.sequence = sequence
        self.open: RebalanceFacts | None = None
        """The rebalance in progress, or the last rebalance while its record is incomplete."""
        self.closed: list[Closed] = []
        """Complete rebalances, in order; the caller of `observe` removes them."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.restarted_ms: int | None = None
        """When the broker restarted (monotonic). Set by the caller; None again after the first
        rebalance that the restart explains."""
        self._conflicts = InstanceConflicts()
        self._leader: str | None = None
        self._assignments: dict[str, bytes] = {}
        self._is_known = False
        """Whether `_assignments` are known to be the members' present assignments."""
        self._renamed: dict[str, str] = {}
        """The ids that renamed members have in `_assignments`, by their new ids."""
        self._departed: list[Departure] = []
        """Departures since the last rebalance: they cause the next one."""
        self._replaced: Departure | None = None
        """The last replacement of a static member outside of a join phase."""
        self._avoided: list[AvoidedFacts] = []
        """Avoided rebalances whose records wait for the open rebalance's record."""
        self._last_rebalance: int | None = None
        self._bumps = Bumps()
        self._fenced_commits = 0
        """Commits fenced since the last rebalance, for the record of the next one."""

    def observe(self, event: Event, now: Now) -> None:
        """Process an event; check `closed` afterwards."""
        handler = self.handlers.get(event.__class__)
        if handler is not None:
            handler(self, event, now)

    @property
    def is_settling(self) -> bool:
        """Whether there is a finished rebalance whose record is incomplete."""
        return self.open is not None and self.open.outcome is not None

    def close_if_complete(self, now_ms: int) -> None:
        """Close the finished rebalance if nothing about it is left to observe."""
        if self.open is not None and self.open.is_complete(now_ms):
            self._close()

    def settle(self) -> None:
        """Stop waiting for members that have not synced."""
        if self.is_settling:
            self._close()

    def stop(self) -> None:
        """Close the open rebalance, because no more events will follow for now."""
        if self.open is not None:
            if self.open.outcome is None:
                self.open.outcome = RebalanceOutcome.UNFINISHED
            self._close()

    # Beginning and end.

    def _on_started(self, event: RebalanceStarted, now: Now) -> None:
        self.sequence += 1
        follows = consumers = None
        if self.open is not None:
            if self.open.outcome is None:
                self.open.end(RebalanceOutcome.SUPERSEDED, now.ms)
            if self.open.outcome in {RebalanceOutcome.SUPERSEDED, RebalanceOutcome.STORE_FAILED}:
                follows = self.open.sequence
                self.open.superseded_by = self.sequence
                consumers = self.open.consumers
            self._close()
        holdings = Holdings(self._assignments, self._renamed) if self._is_known else None
        if event.previous_state == EMPTY:
            holdings = Holdings({}, {})
        facts = self.open = RebalanceFacts(
            sequence=self.sequence,
            began=now,
            started=event,
            holdings=holdings,
            leader_before=self._leader,
            awaited=Awaited(now.ms, now.ms),
            follows=follows,
            previous=self._last_rebalance,
        )
        facts.protocol_type = self.protocol_type
        facts.causes_dropped = event.causes_lost
        if self.restarted_ms is not None and event.trigger.kind in _OF_RESTART:
            if now.ms - self.restarted_ms <= RESTART_MS:
                facts.restart_ms = now.ms - self.restarted_ms
            self.restarted_ms = None
        if event.kind is GroupKind.CONSUMER:
            facts.consumers = ConsumerFacts() if consumers is None else consumers.next(now.ms)
            facts.protocol_type = self.protocol_type = CONSUMER
        facts.fenced_commits, self._fenced_commits = self._fenced_commits, 0
        self._last_rebalance = self.sequence
        for departure in self._departed:
            facts.add_departure(departure)
        self._departed = []
        replaced, self._replaced = self._replaced, None
        trigger = event.trigger.member
        # A replacement in an earlier step began no rebalance, and is not a cause of this one.
        is_now = replaced is not None and replaced.at_ms == now.ms
        if is_now and replaced and trigger and replaced.replaced_by == trigger.member_id:
            facts.add_departure(replaced)
            if self._leader == replaced.replaced_by:
                facts.leader_before = replaced.member.member_id

    def _on_commit_fenced(self, event: CommitFenced, now: Now) -> None:
        del event, now
        if self.open is None:
            self._fenced_commits += 1
        else:
            self.open.fenced_commits += 1

    def _on_ended(self, event: RebalanceEnded, now: Now) -> None:
        facts = self.open
        if facts is None:
            return
        facts.end(_OUTCOMES[event.outcome], now.ms)
        facts.error = event.error
        facts.generation = self.generation = event.generation
        if event.outcome is RebalanceEnd.STORE_FAILED:
            return  # The rebalance that follows in the same step closes it.
        self._assignments = dict(event.assignments)
        self._renamed = {}
        self._is_known = True
        facts.after = Holdings(self._assignments, {})
        if event.outcome is RebalanceEnd.EMPTY:
            self._leader = None
        elif facts.join_phase is not None:
            ids = {member.member_id for member in facts.join_phase.members}
            facts.awaits = ids.difference(facts.syncs, facts.gone)
        self.close_if_complete(now.ms)

    def _close(self) -> None:
        assert self.open is not None
        self.closed.append(self.open)
        self.open = None
        self.closed += self._avoided
        self._avoided = []

    def _on_restored(self, event: GroupRestored, now: Now) -> None:
        del now
        self.stop()
        self.generation = event.generation
        self.protocol_type = event.protocol_type
        # The group may have had rebalances that are not in the history; their sequence numbers, up
        # to the generation, may not be used again.
        self.sequence = max(self.sequence, event.generation)
        self._leader = event.leader
        self._assignments = dict(event.assignments)
        self._renamed = {}
        self._is_known = True
        self._bumps = Bumps()

    def _on_removed_group(self, event: GroupRemoved, now: Now) -> None:
        del event, now
        self.stop()

    def _on_avoided(self, event: RebalanceAvoided, now: Now) -> None:
        if self._conflicts.explains(event.trigger, now.ms):
            return
        self.sequence += 1
        facts = AvoidedFacts(self.sequence, self.generation, Cause(event.trigger, now))
        if self.open is None:
            self.closed.append(facts)
            return
        self._avoided.append(facts)
        if len(self._avoided) >= AVOIDED_HELD:
            self.settle()

    # Join phase.

    def _on_cause(self, event: CauseAdded, now: Now) -> None:
        if self.open is not None:
            self.open.add_cause(event.trigger, now)

    def _on_extended(self, event: InitialDelayExtended, now: Now) -> None:
        del event
        if self.open is not None:
            self.open.add_extension(now.ms)

    def _on_stalled(self, event: JoinPhaseStalled, now: Now) -> None:
        del event
        if self.open is not None:
            self.open.add_stall(now.ms)

    def _on_told(self, event: MemberTold, now: Now) -> None:
        if self.open is not None:
            self.open.told.setdefault(event.member_id, now.ms)

    def _on_join(self, event: JoinReceived, now: Now) -> None:
        if self.open is not None:
            self.open.add_join(event, now.ms)

    def _on_unused_id(self, event: UnusedIdDropped, now: Now) -> None:
        if self.open is not None and self.open.is_collecting:
            self.open.awaited.dropped(now.ms, event.member_id)

    def _on_join_phase_ended(self, event: JoinPhaseEnded, now: Now) -> None:
        facts = self.open
        self.generation = event.generation
        self.protocol_type = event.protocol_type
        self._leader = event.leader
        if facts is not None:
            facts.join_phase = event
            facts.join_phase_ms = now.ms
            facts.generation = event.generation
            facts.protocol_type = event.protocol_type

    # Sync phase.

    def _on_sync(self, event: SyncReceived, now: Now) -> None:
        facts = self.open
        if facts is not None:
            facts.syncs[event.member_id] = now.ms
            if event.is_leader and facts.leader_synced_ms is None:
                facts.leader_synced_ms = now.ms
            if event.member_id in facts.awaits:
                facts.awaits.remove(event.member_id)
                self.close_if_complete(now.ms)

    # Consumer groups.

    def _on_target(self, event: TargetAssigned, now: Now) -> None:
        self.generation = event.epoch
        facts = self.open
        if facts is not None and facts.consumers is not None:
            facts.generation = event.epoch
            elapsed_ms = min(max(now.wall_ms - event.computed_at_ms, 0), now.ms - facts.began.ms)
            facts.consumers.assign(event, now.ms, elapsed_ms)

    def _on_reconciled(self, event: MemberReconciled, now: Now) -> None:
        facts = self.open
        if facts is not None and facts.consumers is not None:
            facts.consumers.move(event, now.ms)

    # Share groups.

    def _on_share_bumped(self, event: ShareEpochBumped, now: Now) -> None:
        self._bumps.add(event.trigger, now)

    def _on_share_assigned(self, event: SharePartitionsAssigned, now: Now) -> None:
        self.sequence += 1
        self.closed.append(
            self._bumps.facts(
                event, now, self._departed, sequence=self.sequence, generation=self.generation
            )
        )
        self.generation = event.epoch
        self._bumps = Bumps()
        self._departed = []

    # Departures.

    def _on_removed(self, event: MemberRemoved, now: Now) -> None:
        fate = _FATES[event.fate]
        departure = Departure(event.member, fate, now.ms, event.text, held=event.held)
        facts = self.open
        if facts is not None and facts.outcome is None:
            facts.add_departure(departure)
            if facts.is_collecting:
                return
        self._departed.append(departure)

    def _on_replaced(self, event: MemberReplaced, now: Now) -> None:
        old, new = event.old_member_id, event.member
        self._renamed[new.member_id] = self._renamed.pop(old, old)
        ref = MemberRef(old, new.instance_id, new.client_id, new.client_host)
        facts = self.open
        # A waiting request of the replaced member is answered at once with FENCED_INSTANCE_ID.
        waits = (facts is not None and facts.outcome is None) and (
            old in facts.joins if facts.is_collecting else old in facts.syncs
        )
        fate = MemberFate.FENCED if waits else MemberFate.REPLACED
        departure = Departure(ref, fate, now.ms, replaced_by=new.member_id)
        self._conflicts.replaced(old, new)
        if facts is not None and facts.outcome is None:
            facts.add_departure(departure)
        if facts is None or not facts.is_collecting:
            self._replaced = departure
        if facts is not None and old in facts.awaits:
            facts.awaits.discard(old)
            self.close_if_complete(now.ms)
        if self._leader == old:
            self._leader = new.member_id

    def _on_fenced(self, event: MemberFenced, now: Now) -> None:
        facts = self.open
        conflict = self._conflicts.fenced(event, now.ms)
        if conflict is not None and (facts is None or facts.outcome is not None):
            self._on_avoided(RebalanceAvoided(conflict), now)
        elif conflict is not None and facts is not None:
            facts.add_cause(conflict, now)
        if facts is None or facts.outcome is not None:
            return
        gone = facts.gone.get(event.member_id)
        if gone is None:
            ref = MemberRef(event.member_id, event.instance_id, "", "")
            facts.add_stranger(Departure(ref, MemberFate.FENCED, now.ms))
        elif gone.fate is MemberFate.REPLACED:
            facts.gone[event.member_id] = gone._replace(fate=MemberFate.FENCED, at_ms=now.ms)

    def _on_refused(self, event: MemberRefused, now: Now) -> None:
        facts = self.open
        if facts is not None and facts.outcome is None:
            ref = MemberRef(event.member_id, None, event.client_id, event.client_host)
            facts.add_stranger(Departure(ref, MemberFate.REFUSED, now.ms))

    handlers: ClassVar[dict[type[Event], Callable[..., None]]] = {
        RebalanceStarted: _on_started,
        CommitFenced: _on_commit_fenced,
        RebalanceEnded: _on_ended,
        RebalanceAvoided: _on_avoided,
        GroupRestored: _on_restored,
        GroupRemoved: _on_removed_group,
        CauseAdded: _on_cause,
        InitialDelayExtended: _on_extended,
        JoinPhaseStalled: _on_stalled,
        MemberTold: _on_told,
        JoinReceived: _on_join,
        UnusedIdDropped: _on_unused_id,
        JoinPhaseEnded: _on_join_phase_ended,
        SyncReceived: _on_sync,
        MemberRemoved: _on_removed,
        MemberReplaced: _on_replaced,
        MemberFenced: _on_fenced,
        MemberRefused: _on_refused,
        TargetAssigned: _on_target,
        MemberReconciled: _on_reconciled,
        ShareEpochBumped: _on_share_bumped,
        SharePartitionsAssigned: _on_share_assigned,
    }
    """The handlers by class of event; a chain of comparisons would cost more than a handler."""


BEGINNINGS: Final = frozenset(
    {RebalanceStarted, RebalanceAvoided, ShareEpochBumped, SharePartitionsAssigned, GroupRestored}
)
"""Events with which a group's history can begin."""
