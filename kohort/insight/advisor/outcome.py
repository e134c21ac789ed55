"""The outcome of a replay, and the meter that measures it.

Stopped time is defined as in the history, so that the two can be compared: for members that were
present before the rebalance, the time from their join to their assignment; for cooperative members,
the longest time during which a partition that they gained had no owner. Unread time is the actual
time during which each partition had no reader, including the time between a crash and its
detection.

Members of a consumer group never stop all their partitions: the stopped time of a member is the
longest time during which a partition that it gained had no owner. `GroupFold`, which also builds
the history, measures it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kohort.groups.events import (
    Event,
    MemberRemoved,
    MemberReplaced,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
)
from kohort.groups.history.facts import RebalanceFacts
from kohort.groups.history.fold import GroupFold
from kohort.groups.requests import Now

_NOTHING: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of replaying a group under one setting. Times in milliseconds."""

    rebalances: int
    stopped_ms: int
    """Sum of the stopped times of all members."""
    stopped_longest_ms: int
    stopped_by_slot: tuple[int, ...]
    """Stopped time of each `Slot` (a process and its successors), in the order of the trace."""
    unread_ms: int
    """Sum of the times during which each partition had no reader."""
    unread_longest_ms: int
    deaths: int
    """Processes that ended without LeaveGroup, so that the group removed their members later."""
    unnoticed_ms: int
    """Sum of the times from the end of each process in `deaths` to its removal by the group."""
    unnoticed_longest_ms: int
    convergence_ms: int = 0
    """Total time from the first cause of a rebalance until the group was stable again, or empty."""
    guessed: int = 0
    """Number of rebalances with an estimated delay, because the history lacks the join or
    revocation time of a member that took part."""


@dataclass(slots=True)
class _Join:
    """A member that has joined a rebalance and waits for its assignment."""

    at_ms: int
    owns: bool


@dataclass(slots=True)
class Meter:
    """Measures a replay from the group's events and the members' actions."""

    slots: int
    begin_ms: int
    """Start of the measured period."""
    rebalances: int = 0
    stopped_by_slot: list[int] = field(default_factory=list)
    stopped_longest_ms: int = 0
    unread_ms: int = 0
    unread_longest_ms: int = 0
    deaths: int = 0
    unnoticed_ms: int = 0
    unnoticed_longest_ms: int = 0
    convergence_ms: int = 0
    guessed: set[int] = field(default_factory=set)
    """Numbers of the rebalances with an estimated delay."""
    slot_of: dict[str, int] = field(default_factory=dict)
    """Index of each member's `Slot` in the trace, by member id."""
    _unstable_since_ms: int | None = None
    _before: set[str] = field(default_factory=set)
    """Members that were present when the rebalance began."""
    _joins: dict[str, _Join] = field(default_factory=dict)
    _synced: set[str] = field(default_factory=set)
    _dead_since: dict[str, int] = field(default_factory=dict)
    _held: dict[str, frozenset[int]] = field(default_factory=dict)
    """Each member's partitions in the last assignment."""
    _taken_at: dict[int, int] = field(default_factory=dict)
    """When each currently unowned partition lost its owner; used in cooperative rebalances."""
    _unread_since: dict[int, int] = field(default_factory=dict)
    _some_own: bool = False
    """Whether this rebalance is cooperative: a member kept its partitions when it joined."""
    consumers: GroupFold | None = None
    """Measures the stopped times of a consumer group; None in a classic group."""

    def __post_init__(self) -> None:
        self.stopped_by_slot = [0] * self.slots

    # Events of the group.

    def observe(self, event: Event, now_ms: int) -> None:
        self._measure_convergence(event, now_ms)
        match event:
            case RebalanceStarted():
                self._close_joins(now_ms)
                self._some_own = False
                self.rebalances += now_ms >= self.begin_ms
                self._before = {member.member_id for member in event.members}
            case RebalanceEnded(outcome) if outcome is not RebalanceEnd.STABLE:
                self._close_joins(now_ms)
            case MemberRemoved():
                self._on_removed(event.member.member_id, now_ms)
            case MemberReplaced():
                old, new = event.old_member_id, event.member.member_id
                if old in self._held:
                    self._held[new] = self._held.pop(old)
                self._before.add(new)
                self._on_removed(old, now_ms)
            case _:
                pass
        if self.consumers is not None:
            self._measure_consumers(self.consumers, event, now_ms)

    def _measure_convergence(self, event: Event, now_ms: int) -> None:
        since_ms = self._unstable_since_ms
        match event:
            case RebalanceStarted() if since_ms is None and now_ms >= self.begin_ms:
                self._unstable_since_ms = now_ms
            case RebalanceEnded(RebalanceEnd.STABLE | RebalanceEnd.EMPTY) if since_ms is not None:
                self.convergence_ms += now_ms - since_ms
                self._unstable_since_ms = None
            case _:
                pass

    def _measure_consumers(self, fold: GroupFold, event: Event, now_ms: int) -> None:
        fold.observe(event, Now(now_ms, now_ms))
        closed, fold.closed = fold.closed, []
        for facts in closed:
            if not isinstance(facts, RebalanceFacts) or facts.consumers is None:
                continue
            if facts.began.ms < self.begin_ms:
                continue
            for member_id, progress in facts.consumers.members.items():
                self.stopped_by_slot[self.slot_of[member_id]] += progress.stopped_ms
                self.stopped_longest_ms = max(self.stopped_longest_ms, progress.stopped_ms)

    def joined(self, member_id: str, now_ms: int, *, owns: bool) -> None:
        """Record that a member has joined and waits; with `owns`, it keeps reading its partitions
        meanwhile.
        """
        self._joins[member_id] = _Join(now_ms, owns)
        self._some_own |= owns

    def count_guess(self, now_ms: int) -> None:
        """Record that the current rebalance uses an estimated join or revocation time."""
        if now_ms >= self.begin_ms:
            self.guessed.add(self.rebalances)

    def synced(self, member_id: str, share: frozenset[int], now_ms: int) -> None:
        """Record that a member has received its assignment."""
        join = self._joins.pop(member_id, None)
        if join is not None:
            duration_ms = now_ms - join.at_ms
            if self._is_cooperative(member_id, join):
                gained = share - self._held.get(member_id, _NOTHING)
                stops = (now_ms - self._taken_at.get(partition, now_ms) for partition in gained)
                duration_ms = max(stops, default=0)
            self._stopped(member_id, duration_ms, now_ms)
        # The member revokes partitions now that it has received the assignment.
        for partition in self._held.get(member_id, _NOTHING) - share:
            self._taken_at[partition] = now_ms
        self._held[member_id] = share
        for partition in share:
            self._taken_at.pop(partition, None)

    def _close_joins(self, now_ms: int) -> None:
        """End the joins without assignment; eager members count as stopped since they joined."""
        joins, self._joins = self._joins, {}
        for member_id, join in joins.items():
            if not self._is_cooperative(member_id, join):
                self._stopped(member_id, now_ms - join.at_ms, now_ms)

    def _is_cooperative(self, member_id: str, join: _Join) -> bool:
        has_nothing = member_id in self._before and not self._held.get(member_id)
        return join.owns or (self._some_own and has_nothing)

    def _on_removed(self, member_id: str, now_ms: int) -> None:
        dead_since_ms = self._dead_since.pop(member_id, None)
        if dead_since_ms is not None and now_ms >= self.begin_ms:
            self.deaths += 1
            self.unnoticed_ms += now_ms - dead_since_ms
            self.unnoticed_longest_ms = max(self.unnoticed_longest_ms, now_ms - dead_since_ms)
        join = self._joins.pop(member_id, None)
        if join is not None and not self._is_cooperative(member_id, join):
            self._stopped(member_id, now_ms - join.at_ms, now_ms)
        for partition in self._held.pop(member_id, _NOTHING):
            self._taken_at.setdefault(partition, now_ms)

    def _stopped(self, member_id: str, duration_ms: int, now_ms: int) -> None:
        if member_id in self._before and now_ms >= self.begin_ms:
            self.stopped_by_slot[self.slot_of[member_id]] += duration_ms
            self.stopped_longest_ms = max(self.stopped_longest_ms, duration_ms)

    # Actions of the members.

    def on_crash(self, member_id: str, now_ms: int) -> None:
        self._dead_since[member_id] = now_ms

    def stop_reading(self, partitions: Iterable[int], now_ms: int) -> None:
        for partition in partitions:
            self._unread_since.setdefault(partition, now_ms)

    def start_reading(self, partitions: Iterable[int], now_ms: int) -> None:
        """Record that these partitions have a reader again."""
        for partition in partitions:
            since_ms = self._unread_since.pop(partition, None)
            if since_ms is not None and now_ms >= self.begin_ms:
                self.unread_ms += now_ms - since_ms
                self.unread_longest_ms = max(self.unread_longest_ms, now_ms - since_ms)

    def outcome(self) -> ReplayOutcome:
        return ReplayOutcome(
            rebalances=self.rebalances,
            stopped_ms=sum(self.stopped_by_slot),
            stopped_longest_ms=self.stopped_longest_ms,
            stopped_by_slot=tuple(self.stopped_by_slot),
            unread_ms=self.unread_ms,
            unread_longest_ms=self.unread_longest_ms,
            deaths=self.deaths,
            unnoticed_ms=self.unnoticed_ms,
            unnoticed_longest_ms=self.unnoticed_longest_ms,
            convergence_ms=self.convergence_ms,
            guessed=len(self.guessed),
        )
