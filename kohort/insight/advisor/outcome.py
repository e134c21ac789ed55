"""What came of a replay, and the meter that counts it while it runs.

Stopped time is counted as the history counts it, so that the two can be compared: from a member's
join to its assignment, for members that were there before; for cooperative ones, the longest time
for which a partition that they gained had no owner. Unread time is the truth behind it: how long
each partition was not read, crashes that were not noticed yet included.
"""

from __future__ import annotations

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

_NOTHING: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The outcome of one group under one setting. Times in milliseconds."""

    rebalances: int
    stopped_ms: int
    """All members together."""
    stopped_longest_ms: int
    """The longest stop of one member."""
    stopped_by_slot: tuple[int, ...]
    """Stopped time of each slot, in the order of the trace's slots."""
    unread_ms: int
    """All partitions together."""
    unread_longest_ms: int
    """The longest time of one partition."""
    deaths: int
    """Processes that went without a word and were missed in the end."""
    unnoticed_ms: int
    """Time from the end of these processes until the group went on without them, added up."""
    unnoticed_longest_ms: int
    guessed: int = 0
    """Rebalances that some member was told of whose history has no such join, or in which it gave
    partitions up and was never seen to: how long it takes was taken from the others."""


@dataclass(slots=True)
class _Join:
    """A member that has stopped for a rebalance."""

    at_ms: int
    owns: bool


@dataclass(slots=True)
class Meter:
    """Sees what members do and what the group says."""

    slots: int
    begin_ms: int
    """The beginning of what is counted."""
    rebalances: int = 0
    stopped_by_slot: list[int] = field(default_factory=list)
    stopped_longest_ms: int = 0
    unread_ms: int = 0
    unread_longest_ms: int = 0
    deaths: int = 0
    unnoticed_ms: int = 0
    unnoticed_longest_ms: int = 0
    guessed: set[int] = field(default_factory=set)
    """Which rebalances, by their number."""
    slot_of: dict[str, int] = field(default_factory=dict)
    """Slots by member id."""
    _before: set[str] = field(default_factory=set)
    """Members that were there when the rebalance began."""
    _joins: dict[str, _Join] = field(default_factory=dict)
    _synced: set[str] = field(default_factory=set)
    _dead_since: dict[str, int] = field(default_factory=dict)
    _held: dict[str, frozenset[int]] = field(default_factory=dict)
    """What each member had in the last assignment."""
    _taken_at: dict[int, int] = field(default_factory=dict)
    """Partitions without an owner in a cooperative group."""
    _unread_since: dict[int, int] = field(default_factory=dict)
    _some_own: bool = False
    """Whether this rebalance is cooperative."""

    def __post_init__(self) -> None:
        self.stopped_by_slot = [0] * self.slots

    # What the group says.

    def observe(self, event: Event, now_ms: int) -> None:
        match event:
            case RebalanceStarted():
                self._close_joins(now_ms)
                self._some_own = False
                self.rebalances += now_ms >= self.begin_ms
                self._before = {member.member_id for member in event.members}
            case RebalanceEnded(outcome) if outcome is not RebalanceEnd.STABLE:
                self._close_joins(now_ms)
            case MemberRemoved():
                self._gone(event.member.member_id, now_ms)
            case MemberReplaced():
                old, new = event.old_member_id, event.member.member_id
                if old in self._held:
                    self._held[new] = self._held.pop(old)
                self._before.add(new)
                self._gone(old, now_ms)
            case _:
                pass

    def joined(self, member_id: str, now_ms: int, *, owns: bool) -> None:
        """A join is parked; with `owns`, of a member that goes on reading."""
        self._joins[member_id] = _Join(now_ms, owns)
        self._some_own |= owns

    def guesses(self, now_ms: int) -> None:
        """Note that the history does not say how long a member takes to join this rebalance, or to
        give partitions up.
        """
        if now_ms >= self.begin_ms:
            self.guessed.add(self.rebalances)

    def synced(self, member_id: str, share: frozenset[int], now_ms: int) -> None:
        """A member has its assignment."""
        join = self._joins.pop(member_id, None)
        if join is not None:
            duration_ms = now_ms - join.at_ms
            if self._is_cooperative(member_id, join):
                gained = share - self._held.get(member_id, _NOTHING)
                stops = (now_ms - self._taken_at.get(one, now_ms) for one in gained)
                duration_ms = max(stops, default=0)
            self._stopped(member_id, duration_ms, now_ms)
        # What it has to give up, it gives up now: before, it has not heard of it.
        for partition in self._held.get(member_id, _NOTHING) - share:
            self._taken_at[partition] = now_ms
        self._held[member_id] = share
        for partition in share:
            self._taken_at.pop(partition, None)

    def _close_joins(self, now_ms: int) -> None:
        """End the open joins, which got no assignment: their time counts as stopped."""
        joins, self._joins = self._joins, {}
        for member_id, join in joins.items():
            if not self._is_cooperative(member_id, join):
                self._stopped(member_id, now_ms - join.at_ms, now_ms)

    def _is_cooperative(self, member_id: str, join: _Join) -> bool:
        has_nothing = member_id in self._before and not self._held.get(member_id)
        return join.owns or (self._some_own and has_nothing)

    def _gone(self, member_id: str, now_ms: int) -> None:
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

    # What the members do.

    def died(self, member_id: str, now_ms: int) -> None:
        """Note that a member ended without leaving the group."""
        self._dead_since[member_id] = now_ms

    def unread(self, partitions: Iterable[int], now_ms: int) -> None:
        """Note that these partitions are not read any more."""
        for partition in partitions:
            self._unread_since.setdefault(partition, now_ms)

    def read(self, partitions: Iterable[int], now_ms: int) -> None:
        """Note that these partitions are read again."""
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
            guessed=len(self.guessed),
        )
