"""Collects the facts about a rebalance in progress: its events with their times, by kind.

Nothing is derived here, because this code runs while a group executes a command and must take only
a few microseconds per event; `build` creates the record later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from kohort.groups.events import (
    Certainty,
    JoinPhaseEnded,
    JoinReceived,
    MemberRef,
    RebalanceStarted,
    SharePartitionsAssigned,
    Trigger,
    TriggerKind,
)
from kohort.groups.history.consumers import ConsumerFacts, Partition
from kohort.groups.history.names import (
    CAUSES_LISTED,
    EXTENSIONS_LISTED,
    GONE_KEPT,
    STRANGERS_KEPT,
    MemberFate,
    RebalanceOutcome,
)
from kohort.groups.requests import Now
from kohort.protocol.errors import ErrorCode

LINGERS_MS: Final = 1_000
"""A client that shuts down closes its connections within this time after its LeaveGroup."""


class Holdings(NamedTuple):
    """Assignments by member id, as far as known; `renamed` maps the new ids of static members
    that were replaced since to the ids in `assignments`.
    """

    assignments: Mapping[str, bytes]
    renamed: Mapping[str, str]

    def of(self, member_id: str) -> bytes:
        """Return the assignment of a member, b"" if it has none."""
        found = self.assignments.get(member_id)
        if found is None:
            found = self.assignments.get(self.renamed.get(member_id, ""))
        return found or b""


class Cause(NamedTuple):
    trigger: Trigger
    at: Now

    def may_be_stuck(self, now_ms: int) -> bool:
        """Whether this is a member that left without a reason, has not closed its connection yet,
        and may still do so: see `LINGERS_MS`.
        """
        trigger = self.trigger
        if trigger.kind is not TriggerKind.MEMBER_LEFT or trigger.connection is None:
            return False
        if trigger.detail or now_ms - self.at.ms >= LINGERS_MS:
            return False
        return trigger.connection.is_open


class Departure(NamedTuple):
    member: MemberRef
    fate: MemberFate
    at_ms: int
    text: str | None = None
    replaced_by: str | None = None
    held: tuple[Partition, ...] = ()
    """The member's partitions, in a consumer group."""


@dataclass(slots=True, eq=False)
class Awaited:
    """The members and pending member ids for which the join phase waited longest: the latest to
    join, leave or be dropped, at `at_ms`.
    """

    before_ms: int
    """When others last joined, left or were dropped before that; at first the rebalance's start."""
    at_ms: int
    member_ids: list[str] = field(default_factory=list)
    pending_ids: list[str] = field(default_factory=list)

    def came(self, now_ms: int, member_id: str) -> None:
        if now_ms != self.at_ms:
            self._move(now_ms)
        self.member_ids.append(member_id)

    def dropped(self, now_ms: int, pending_id: str) -> None:
        if now_ms != self.at_ms:
            self._move(now_ms)
        self.pending_ids.append(pending_id)

    def _move(self, now_ms: int) -> None:
        self.before_ms, self.at_ms = self.at_ms, now_ms
        self.member_ids, self.pending_ids = [], []


@dataclass(slots=True, eq=False)
class RebalanceFacts:
    """The facts about one rebalance. Times are monotonic milliseconds."""

    sequence: int
    began: Now
    started: RebalanceStarted
    holdings: Holdings | None
    """The members' partitions before the rebalance; None if unknown."""
    leader_before: str | None
    awaited: Awaited
    follows: int | None = None
    superseded_by: int | None = None
    previous: int | None = None
    """Sequence number of the previous rebalance, whatever its outcome."""
    causes: list[Cause] = field(default_factory=list)
    causes_dropped: int = 0
    extensions_ms: list[int] = field(default_factory=list)
    stalled_ms: list[int] = field(default_factory=list)
    told: dict[str, int] = field(default_factory=dict)
    joins: dict[str, tuple[int, JoinReceived]] = field(default_factory=dict)
    gone: dict[str, Departure] = field(default_factory=dict)
    gone_dropped: int = 0
    join_phase: JoinPhaseEnded | None = None
    join_phase_ms: int = 0
    leader_synced_ms: int | None = None
    syncs: dict[str, int] = field(default_factory=dict)
    """When each member's sync was received."""
    awaits: set[str] = field(default_factory=set)
    """Once the generation is stored, its members that have not synced yet; empty before."""
    outcome: RebalanceOutcome | None = None
    error: ErrorCode = ErrorCode.NONE
    finished_ms: int | None = None
    generation: int | None = None
    restart_ms: int | None = None
    """Time since the broker's restart, if the restart explains the rebalance."""
    fenced_commits: int = 0
    """Commits that were fenced since the previous rebalance."""
    protocol_type: str | None = None
    after: Holdings | None = None
    consumers: ConsumerFacts | None = None
    """Facts that only rebalances of consumer groups have; None for others."""

    @property
    def is_collecting(self) -> bool:
        """Whether the join phase runs; in a consumer group: no target assignment is stored yet."""
        if self.consumers is not None:
            return self.consumers.epoch is None and self.outcome is None
        return self.join_phase is None and self.outcome is None

    def is_complete(self, now_ms: int) -> bool:
        """Whether all members have their assignment, and it is known whether those that left
        without a reason closed their connections.
        """
        if self.outcome is None or self.awaits:
            return False
        causes = (Cause(self.started.trigger, self.began), *self.causes)
        return not any(cause.may_be_stuck(now_ms) for cause in causes)

    def add_cause(self, trigger: Trigger, now: Now) -> None:
        if len(self.causes) < CAUSES_LISTED:
            self.causes.append(Cause(trigger, now))
        else:
            self.causes_dropped += 1

    def add_join(self, event: JoinReceived, now_ms: int) -> None:
        member_id = event.member.member_id
        self.joins[member_id] = (now_ms, event)
        self.awaited.came(now_ms, member_id)

    def add_departure(self, departure: Departure) -> None:
        member_id = departure.member.member_id
        if self.consumers is not None and departure.replaced_by is None:
            self.consumers.remove(departure.member, departure.held, departure.at_ms)
        elif self.consumers is not None:
            self.consumers.replace(departure.member, departure.at_ms)
        if len(self.gone) < GONE_KEPT:
            self.gone[member_id] = departure
        else:
            self.gone_dropped += 1
            self.joins.pop(member_id, None)
            self.told.pop(member_id, None)
            if self.consumers is not None:
                del self.consumers.members[member_id]
        if self.is_collecting:
            self.awaited.came(departure.at_ms, member_id)

    def add_stranger(self, departure: Departure) -> None:
        """Add a client whose request was fenced or refused, and that is not a member."""
        if len(self.gone) < STRANGERS_KEPT:
            self.gone.setdefault(departure.member.member_id, departure)
        else:
            self.gone_dropped += 1

    def add_extension(self, now_ms: int) -> None:
        if len(self.extensions_ms) < EXTENSIONS_LISTED:
            self.extensions_ms.append(now_ms)

    def add_stall(self, now_ms: int) -> None:
        if len(self.stalled_ms) < EXTENSIONS_LISTED:
            self.stalled_ms.append(now_ms)

    def end(self, outcome: RebalanceOutcome, now_ms: int) -> None:
        self.outcome = outcome
        self.finished_ms = now_ms


def copy_of(facts: RebalanceFacts) -> RebalanceFacts:
    """Copy the facts collected so far, for a reader that runs in several time slices."""
    return replace(
        facts,
        awaited=replace(
            facts.awaited,
            member_ids=facts.awaited.member_ids.copy(),
            pending_ids=facts.awaited.pending_ids.copy(),
        ),
        causes=facts.causes.copy(),
        extensions_ms=facts.extensions_ms.copy(),
        stalled_ms=facts.stalled_ms.copy(),
        told=facts.told.copy(),
        joins=facts.joins.copy(),
        gone=facts.gone.copy(),
        syncs=facts.syncs.copy(),
        awaits=facts.awaits.copy(),
        consumers=None if facts.consumers is None else facts.consumers.copy(),
    )


def remains_of(facts: RebalanceFacts) -> list[Any]:
    """Return the objects that hold most of the memory of `facts`, to be freed in steps."""
    members = () if facts.join_phase is None else facts.join_phase.members
    return [*facts.started.members, *members, *facts.joins.values(), *facts.gone.values()]


class AvoidedFacts(NamedTuple):
    """The facts about an avoided rebalance."""

    sequence: int
    generation: int
    cause: Cause


class AssignedFacts(NamedTuple):
    """The facts about one assignment of a share group."""

    sequence: int
    previous_generation: int
    at: Now
    assigned: SharePartitionsAssigned
    causes: tuple[Cause, ...]
    causes_dropped: int
    departed: tuple[Departure, ...]
    """The members that left or were removed since the previous assignment."""


@dataclass(slots=True, eq=False)
class Bumps:
    """Why the epoch of a share group has increased since its last assignment."""

    causes: list[Cause] = field(default_factory=list)
    dropped: int = 0

    def add(self, trigger: Trigger, now: Now) -> None:
        if len(self.causes) <= CAUSES_LISTED:
            self.causes.append(Cause(trigger, now))
        else:
            self.dropped += 1

    def facts(
        self,
        event: SharePartitionsAssigned,
        now: Now,
        departed: Sequence[Departure],
        *,
        sequence: int,
        generation: int,
    ) -> AssignedFacts:
        """Return the facts about an assignment; `generation` is the epoch of the previous one."""
        unknown = Cause(Trigger(TriggerKind.UNKNOWN, certainty=Certainty.UNCLEAR), now)
        causes = tuple(self.causes) or (unknown,)
        return AssignedFacts(
            sequence, generation, now, event, causes, self.dropped, tuple(departed)
        )
