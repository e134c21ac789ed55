"""The lifetimes of a group's client processes, independent of the settings in force.

Times are milliseconds since 1970, as in the history.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final

from kohort.insight.advisor.client_software import UNKNOWN, Software
from kohort.insight.advisor.heartbeat_times import JAVA_TIMER, LOOK_MS, HeartbeatTimer
from kohort.insight.advisor.setting import Setting
from kohort.protocol.join_reason import JoinReason

DELAY_DEFAULT_MS: Final = 50
"""Default delay from the notification of a rebalance to the join, if the history has no such
delay."""
ANSWER_DEFAULT_MS: Final = 5
"""Default delay from the response to a join to the sync, if the history has no such delay."""
SAME_MS: Final = 10_000
"""A recorded delay is used again within this time before and after its recording."""
NEIGHBOURS: Final = 5
"""If no delay was recorded within SAME_MS, one is drawn from this many nearest in time."""


class End(StrEnum):
    """How the run of a process ended."""

    LEFT = "left"
    """A clean shutdown: a dynamic member sends LeaveGroup, a static one does not."""
    SILENT = "silent"
    """The process stopped without LeaveGroup."""
    REMOVED = "removed"
    """An administrator removed the member, static or not."""


@dataclass(frozen=True, slots=True)
class Run:
    """A process, from its first join to its end."""

    start_ms: int
    end_ms: int | None = None
    """When the process ended; None if it was alive at the end of the history."""
    end: End | None = None
    margin_ms: int = 0
    """Uncertainty of the end: the history shows the last heartbeat, not the end of the process."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The process was suspended until its session expired, and resumed later."""

    from_ms: int
    until_ms: int
    margin_ms: int = 0
    """Uncertainty of the start: the history shows the last heartbeat before the pause."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Recorded delays of a process over time."""

    at_ms: tuple[int, ...] = ()
    """Times of the samples, in order."""
    took_ms: tuple[int, ...] = ()
    neighbours: int = NEIGHBOURS
    """Number of nearest samples to draw from; 1 to use the nearest."""

    @classmethod
    def from_samples(cls, samples: list[tuple[int, int]], neighbours: int = NEIGHBOURS) -> "Delays":
        ordered = sorted(samples)
        moments, durations = (tuple(sample[index] for sample in ordered) for index in (0, 1))
        return cls(moments, durations, neighbours)

    def near(self, at_ms: int, default_ms: int, chance: Random) -> int:
        """Return the delay recorded at this time; without one, draw one of the delays recorded
        nearest in time.
        """
        if self.at_ms:
            first, _ = self._around(at_ms, 1)
            if abs(self.at_ms[first] - at_ms) <= SAME_MS:
                return self.took_ms[first]
        return self.drawn(at_ms, default_ms, chance)

    def drawn(self, at_ms: int, default_ms: int, chance: Random) -> int:
        """Draw one of the nearest samples.

        Always taking the nearest sample would make all replays agree more than real runs do.
        """
        if not self.at_ms:
            return default_ms
        first, last = self._around(at_ms, self.neighbours)
        return self.took_ms[first if last - first == 1 else chance.randrange(first, last)]

    def _around(self, at_ms: int, count: int) -> tuple[int, int]:
        """Return the range of indexes of the `count` samples nearest to a time."""
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
    """A position in the group, held by a process and its restarted successors."""

    name: str
    """The instance id of the process, or a generated name."""
    client_id: str
    host: str
    instance_id: str | None
    runs: tuple[Run, ...]
    pauses: tuple[Pause, ...] = ()
    join: Delays = field(default_factory=Delays)
    """Delays from the notification of a rebalance to the join."""
    again: Delays = field(default_factory=Delays)
    """Delays of joins by a member that had just joined another rebalance."""
    assign: Delays = field(default_factory=Delays)
    """Delays of a leader, from the response to its join until the assignment was stored."""
    sync: Delays = field(default_factory=Delays)
    """Delays of a follower, from the response to its join to its sync."""
    timer: HeartbeatTimer = JAVA_TIMER
    """How the client library times heartbeats."""
    revoke: Delays = field(default_factory=Delays)
    """Delays of a cooperative member, from an assignment that revokes partitions to the join that
    confirms the revocation."""
    software: Software = UNKNOWN
    """Client library of the most recent process for which it is known."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """A member joins on its own initiative."""

    at_ms: int
    slot: int | None
    """Index of the joining member's `Slot`; None: the leader joins, because topics have changed."""
    reason: JoinReason
    changes_protocols: bool = False
    """Whether the member's metadata changed, such as its subscription."""


class Uncertainty(StrEnum):
    """An unknown fact; settings whose outcome depends on it are not ranked."""

    ABSENCES = "how long static members were away is not recorded"
    """Affects settings with a shorter session timeout, which may expire during an absence."""
    CRASHES = "whether static members that did not come back had crashed is unknown"
    """Affects dynamic membership: members leave at once in a clean shutdown, but not in a crash."""
    FATES = "whether members had left or their sessions had expired is unclear"
    """With static members, a departure would begin no rebalance; under another session timeout, a
    session would expire at another time."""
    PAUSES = "whether silent processes had paused or restarted is unknown"
    """Affects settings with a longer session timeout, which may not expire during a pause."""
    MODE = "whether members were eager or cooperative is not in the history"
    REVOCATIONS = (
        "the history has no revocation by a member, and eager members revoke at every rebalance"
    )
    JOINS = "how long members take to join is not in the history"
    SESSION = "session.timeout.ms is not in the history"
    """Without it, the effects of static membership and of other session timeouts are unknown."""
    HEARTBEAT = "heartbeat.interval.ms is not in the history"
    TIMEOUT = "max.poll.interval.ms is not in the history"
    DELAY = "group.initial.rebalance.delay.ms is not in the history"
    SOME_JOINS = "how long some members take to join is not in the history"
    """These members never rejoined after the notification of a rebalance."""
    SOME_REVOCATIONS = "how long some members take to revoke partitions is not in the history"
    """An assignor that moves few partitions may never revoke any from a slow member."""
    SILENCES = "silences shorter than the recorded session are not in the history"
    """Applies to every history; a shorter session timeout may expire during such a silence."""


@dataclass(frozen=True, slots=True)
class Trace:
    group: str
    slots: tuple[Slot, ...]
    rejoins: tuple[Rejoin, ...]
    begin_ms: int
    end_ms: int
    recorded: Setting
    """The settings in force, as far as the history shows them; `unknown` lists the rest."""
    partition_count: int
    default_join_ms: int = DELAY_DEFAULT_MS
    """Join delay assumed for members without a measured one."""
    default_again_ms: int | None = None
    """Join delay assumed for members that have just joined another rebalance; None if unknown."""
    quick_join_ms: int = DELAY_DEFAULT_MS
    """Join delay of a member that has nothing to revoke."""
    default_sync_ms: int = ANSWER_DEFAULT_MS
    default_assign_ms: int = ANSWER_DEFAULT_MS
    look_ms: int = LOOK_MS
    """The clients' poll interval for heartbeats; see `heartbeat_times`."""
    revoke_ms: int = 0
    """Cooperative members: delay from an assignment that revokes partitions to the join that
    confirms the revocation."""
    assignor: str | None = None
    """Protocol name of the last assignor; None if it is unknown."""
    rebalances: int = 0
    initial_rebalances: int = 0
    """Number of `rebalances` that began in an empty group, with the initial delay."""
    waited_by_slot: tuple[int, ...] = ()
    """For each `Slot`, the ms that rebalances waited for it, divided if they waited for several."""
    stopped_ms: int | None = None
    """Total stopped time of members in the history; None if it is unknown."""
    unknown: tuple[str, ...] = ()
    """Sentences about the facts missing from the history."""
    doubts: tuple[Uncertainty, ...] = ()
    """The missing facts on which the outcomes of some settings depend."""

    @property
    def software(self) -> tuple[Software, ...]:
        """The software of the members at the end of the history; of all members if none is left."""
        present = [slot for slot in self.slots if slot.runs and slot.runs[-1].end_ms is None]
        return tuple([slot.software for slot in present or self.slots])
