"""What happened to the processes of a group, free of what the settings of the time made of it.

Moments are milliseconds since 1970, as in the history.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final

from kohort.insight.advisor.beats import LOOK_MS
from kohort.insight.advisor.setting import Setting
from kohort.protocol.join_reason import JoinReason

DELAY_DEFAULT_MS: Final = 50
"""The delay from being told of a rebalance to joining it, where no history says how long it
took."""
ANSWER_DEFAULT_MS: Final = 5
"""The delay from the answer to a join to the sync, likewise."""
SAME_MS: Final = 10_000
"""What a process took this close to a moment, it took at that moment."""
NEIGHBOURS: Final = 5
"""Number of times nearest to a moment that are taken to be equally likely at that moment."""


class End(StrEnum):
    """How the run of a process ended."""

    LEFT = "left"
    """The process stopped in good order: a dynamic member sends LeaveGroup, a static one does
    not."""
    SILENT = "silent"
    """The process was not heard of any more."""
    REMOVED = "removed"
    """An administrator took it out, static or not."""


@dataclass(frozen=True, slots=True)
class Run:
    """A process, from its first join to its end."""

    start_ms: int
    end_ms: int | None = None
    """Time of its end; None if it was alive when the recording ended."""
    end: End | None = None
    margin_ms: int = 0
    """How much sooner or later the end may have been: the history does not show when a process
    dies, only which heartbeat was its last."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A process was silent for so long that its session ended, and then went on."""

    from_ms: int
    until_ms: int
    margin_ms: int = 0
    """Margin of the beginning, like that of the end of a run."""


@dataclass(frozen=True, slots=True)
class Delays:
    """How long a process took for something, whenever it did it: the history of its slowness."""

    at_ms: tuple[int, ...] = ()
    """When, in order."""
    took_ms: tuple[int, ...] = ()
    neighbours: int = NEIGHBOURS
    """Number of nearest times from which one is drawn; 1 where the nearest is the truth."""

    @classmethod
    def of(cls, samples: list[tuple[int, int]], neighbours: int = NEIGHBOURS) -> Delays:
        ordered = sorted(samples)
        moments, durations = (tuple(one[place] for one in ordered) for place in (0, 1))
        return cls(moments, durations, neighbours)

    def near(self, at_ms: int, default_ms: int, chance: Random) -> int:
        """What it took then; if that was not seen, one of the times that are nearest, by lot.

        Always the very nearest would have all replays agree where life does not.
        """
        if not self.at_ms:
            return default_ms
        first, last = self._around(at_ms, 1)
        if abs(self.at_ms[first] - at_ms) > SAME_MS:
            first, last = self._around(at_ms, self.neighbours)
        return self.took_ms[first if last - first == 1 else chance.randrange(first, last)]

    def _around(self, at_ms: int, count: int) -> tuple[int, int]:
        """The range of indexes of the `count` samples that are nearest to a moment."""
        size = len(self.at_ms)
        first = last = bisect_left(self.at_ms, at_ms)
        while last - first < min(count, size):
            is_before = first > 0 and (
                last == size or at_ms - self.at_ms[first - 1] <= self.at_ms[last] - at_ms
            )
            if is_before:
                first -= 1
            else:
                last += 1
        return first, last


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one process and of those that were started in its stead."""

    name: str
    """The instance id of the process, or a name that is made up."""
    client_id: str
    host: str
    instance_id: str | None
    runs: tuple[Run, ...]
    pauses: tuple[Pause, ...] = ()
    join: Delays = field(default_factory=Delays)
    """Delays from being told of a rebalance to joining it."""
    again: Delays = field(default_factory=Delays)
    """The same if it had just joined another."""
    assign: Delays = field(default_factory=Delays)
    """Delays as the leader, from the answer to its join until its assignment was in force."""
    sync: Delays = field(default_factory=Delays)
    """Delays as a follower, from the answer to its join to its sync."""
    revoke: Delays = field(default_factory=Delays)
    """Delays as a cooperative member, from an assignment that takes partitions to the join that
    says so."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """A member joins though it was not asked to."""

    at_ms: int
    slot: int | None
    """The slot that joins; None for the one that leads, since leaders watch the topics."""
    reason: JoinReason
    changes_protocols: bool = False
    """Whether the member offers something else than before, such as another subscription."""


class Uncertainty(StrEnum):
    """Something that is not known, and takes the settings that rest on it out of the ranking."""

    ABSENCES = "how long static members were away that came back in time is not recorded"
    """A shorter session may miss them."""
    CRASHES = "whether static members that did not come back had crashed is not known"
    """Dynamic ones would have left if they had not."""
    PAUSES = "whether silent processes had paused or were started again is not known"
    """A longer session would not have noticed a pause."""
    MODE = "whether members were eager or cooperative is not in the history"
    REVOCATIONS = "no member was seen to give partitions up, which eager ones do at every rebalance"
    JOINS = "how long members take to join is not in the history"
    SESSION = "session.timeout.ms is not in the history"
    """How long a process may be away is what static membership and another session rest on."""
    HEARTBEAT = "heartbeat.interval.ms is not in the history"
    TIMEOUT = "max.poll.interval.ms is not in the history"
    DELAY = "group.initial.rebalance.delay.ms is not in the history"
    UNTOLD = "how long some members take to join is not in the history"
    """The history has them come and go, but never told of a rebalance that they took part in."""
    UNGIVEN = "how long some members take to give partitions up is not in the history"
    """An assignor that moves little may never take any from one that is slow."""
    SILENCES = "silences that the session of the time has outlived are not in the history"
    """True of every history; a shorter session may take them for deaths."""


@dataclass(frozen=True, slots=True)
class Trace:
    """All that the advisor knows of a group."""

    group: str
    slots: tuple[Slot, ...]
    rejoins: tuple[Rejoin, ...]
    begin_ms: int
    end_ms: int
    recorded: Setting
    """What it was recorded under, as far as can be seen; see `unknown` for the rest."""
    partition_count: int
    default_join_ms: int = DELAY_DEFAULT_MS
    """Delay of members of which none is known."""
    default_again_ms: int | None = None
    """The same of members that have just joined another rebalance; None if there was none."""
    quick_join_ms: int = DELAY_DEFAULT_MS
    """The same of a member that has nothing to give up before its join."""
    default_sync_ms: int = ANSWER_DEFAULT_MS
    default_assign_ms: int = ANSWER_DEFAULT_MS
    look_ms: int = LOOK_MS
    """How often clients look whether it is time for a heartbeat; see `beats`."""
    revoke_ms: int = 0
    """Cooperative members: from an assignment that takes partitions to the join that says so."""
    assignor: str | None = None
    """The assignor that the group chose last, by its name in the protocol; None if not known."""
    rebalances: int = 0
    """The number of rebalances in the history."""
    initial_rebalances: int = 0
    """First ones of an empty group among them."""
    waited_by_slot: tuple[int, ...] = ()
    """How long rebalances waited for each slot when all others were there, in ms."""
    stopped_ms: int | None = None
    """The total in the history; None if it is not known."""
    unknown: tuple[str, ...] = ()
    """What the history does not say, in words."""
    doubts: tuple[Uncertainty, ...] = ()
    """What the history does not say, by the settings whose outcome rests on it."""
