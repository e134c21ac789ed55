"""What a consumer counts and times about its group, under the names of Java's consumer.

Pure: the times are passed in, in milliseconds of one monotonic clock. Rates, averages and maxima
are those of the last two windows of 30 seconds, as Java keeps them by default (metrics.num.samples
and metrics.sample.window.ms), so that dashboards which were made for one fit the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from kohort.client.core.errors import ConsumerError, is_refusal
from kohort.client.core.failing import Failures
from kohort.client.core.group.steps import (
    Apply,
    Assign,
    FindCoordinator,
    Idle,
    Join,
    Prepare,
    RefreshTopics,
    Step,
    Sync,
)
from kohort.protocol.errors import ErrorCode

WINDOW_MS: Final = 30_000
WINDOW_COUNT: Final = 2
NEVER: Final = -1.0
"""For `-seconds-ago`, as in Java."""

Figures = dict[str, float | None]
"""By name; None is an average or a maximum of nothing, for which Java has NaN."""


class RebalancePhase(Enum):
    """What a consumer is doing about its membership."""

    NONE = "none"
    """Nothing: it reads, or does not want to be a member."""
    FINDING_COORDINATOR = "finding coordinator"
    PREPARING = "preparing"
    """It commits, and tells the listener what is revoked or lost."""
    JOINING = "joining"
    """Its JoinGroup waits for the other members."""
    ASSIGNING = "assigning"
    """It leads, and its assignor runs."""
    SYNCING = "syncing"
    """Its SyncGroup waits for the leader's assignment."""
    APPLYING = "applying"
    """The listener hears what was assigned."""


_PHASES: Final[Mapping[type[Step], RebalancePhase]] = MappingProxyType(
    {
        FindCoordinator: RebalancePhase.FINDING_COORDINATOR,
        RefreshTopics: RebalancePhase.PREPARING,
        Prepare: RebalancePhase.PREPARING,
        Join: RebalancePhase.JOINING,
        Assign: RebalancePhase.ASSIGNING,
        Sync: RebalancePhase.SYNCING,
        Apply: RebalancePhase.APPLYING,
    }
)


class _Window:
    __slots__ = ("begin_ms", "count", "highest", "total")

    def __init__(self, begin_ms: int) -> None:
        self.begin_ms = begin_ms
        self.count = 0
        self.total = 0.0
        self.highest = 0.0


class Sampled:
    """Values of one kind: all of them counted, the latest ones measured."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        """The sum of all values."""
        self.last_ms: int | None = None
        """When the last one came."""
        self._windows: deque[_Window] = deque(maxlen=WINDOW_COUNT)

    def record(self, value: float, now_ms: int) -> None:
        """One more."""
        self.count += 1
        self.total += value
        self.last_ms = now_ms
        if not self._windows or now_ms - self._windows[-1].begin_ms >= WINDOW_MS:
            self._windows.append(_Window(now_ms))
        window = self._windows[-1]
        window.count += 1
        window.total += value
        window.highest = max(window.highest, value)

    def per_second(self, now_ms: int) -> float:
        """How often, lately. Like Java, not as if everything had come in the first second of a
        window: it counts as at least one window long.
        """
        windows = self._recent(now_ms)
        if not windows:
            return 0.0
        span_ms = max(now_ms - windows[0].begin_ms, (WINDOW_COUNT - 1) * WINDOW_MS)
        return sum(window.count for window in windows) * 1000 / span_ms

    def average(self, now_ms: int) -> float | None:
        """The average of the latest values; None if there are none."""
        windows = self._recent(now_ms)
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else None

    def highest(self, now_ms: int) -> float | None:
        """The highest of the latest values; None if there are none."""
        return max((window.highest for window in self._recent(now_ms)), default=None)

    def seconds_ago(self, now_ms: int) -> float:
        """Since the last one; NEVER."""
        return NEVER if self.last_ms is None else (now_ms - self.last_ms) / 1000

    def _recent(self, now_ms: int) -> list[_Window]:
        return [
            window
            for window in self._windows
            if now_ms - window.begin_ms < WINDOW_COUNT * WINDOW_MS
        ]


class HeartbeatStatistics:
    """Statistics of the heartbeat thread's requests, kept behind the lock of its rules."""

    def __init__(self) -> None:
        self._answers = Sampled()

    def answered(self, sent_ms: int, now_ms: int) -> None:
        """A heartbeat that was sent then has shown that the member lives."""
        self._answers.record(now_ms - sent_ms, now_ms)

    def figures(self, now_ms: int) -> Figures:
        """Under Java's names."""
        return {
            "heartbeat-rate": self._answers.per_second(now_ms),
            "heartbeat-total": self._answers.count,
            "heartbeat-response-time-max": self._answers.highest(now_ms),
            "last-heartbeat-seconds-ago": self._answers.seconds_ago(now_ms),
        }


class GroupStatistics:
    """Statistics of one consumer's joins, syncs, rebalances and commits. Used on the loop alone."""

    def __init__(self) -> None:
        self.phase = RebalancePhase.NONE
        self.phase_since_ms: int | None = None
        """When the phase began; None before there was any."""
        self.unsettled_since_ms: int | None = None
        """Since when the consumer is no settled member of its group; None if it is one."""
        self.rebalance_began_ms: int | None = None
        """When the rebalance that is under way began; None if there is none."""
        self.last_cause: str | None = None
        """Why the last complete rebalance began."""
        self.last_duration_ms: int | None = None
        self._cause: str | None = None
        self._joins = Sampled()
        self._syncs = Sampled()
        self._rebalances = Sampled()
        self._failures = Sampled()
        self._commits = Sampled()
        self.commit_failures = Failures()
        self._join_sent_ms = 0
        self._sync_sent_ms = 0

    # What happens.

    def begun(self, step: Step, cause: str, now_ms: int) -> None:
        """The consumer does what its membership asked for. `cause`: why it wants to join, if it
        does; of a rebalance the first one counts.
        """
        phase = _PHASES.get(type(step), RebalancePhase.NONE)
        # Idle and wanting to join: it waits before another attempt.
        if phase is not self.phase and not (cause and isinstance(step, Idle)):
            self.phase = phase
            self.phase_since_ms = now_ms
        if isinstance(step, Join):
            self._join_sent_ms = now_ms
            if self.rebalance_began_ms is None:
                self.rebalance_began_ms = now_ms
                self._cause = cause
        elif isinstance(step, Sync):
            self._sync_sent_ms = now_ms

    def join_answered(self, code: int, now_ms: int) -> None:
        """The answer to a JoinGroup; NETWORK_EXCEPTION if there was none."""
        if code == ErrorCode.NONE:
            self._joins.record(now_ms - self._join_sent_ms, now_ms)
        elif code != ErrorCode.MEMBER_ID_REQUIRED:
            # That one is the first half of every join. Java counts it as a failure.
            self._failures.record(0, now_ms)

    def sync_answered(self, code: int, now_ms: int) -> None:
        """The answer to a SyncGroup, which ends a rebalance; NETWORK_EXCEPTION if there was none.

        After an error the rebalance is still under way: attempts that fail are part of it.
        """
        if code != ErrorCode.NONE:
            self._failures.record(0, now_ms)
            return
        self._syncs.record(now_ms - self._sync_sent_ms, now_ms)
        began_ms, self.rebalance_began_ms = self.rebalance_began_ms, None
        if began_ms is not None:
            self._rebalances.record(now_ms - began_ms, now_ms)
            self.last_duration_ms = now_ms - began_ms
            self.last_cause, self._cause = self._cause, None

    def left(self, now_ms: int) -> None:
        """The consumer is out of its group on purpose: nothing is under way any more."""
        self.rebalance_began_ms = self._cause = self.unsettled_since_ms = None
        self.phase = RebalancePhase.NONE
        self.phase_since_ms = now_ms

    def saw(self, now_ms: int, *, is_settled: bool) -> None:
        """How things stand; to be told whenever that may have changed."""
        if is_settled:
            self.unsettled_since_ms = None
        elif self.unsettled_since_ms is None:
            self.unsettled_since_ms = now_ms

    def committed(self, latency_ms: float, now_ms: float) -> None:
        """Positions were stored, that long after the OffsetCommit was sent."""
        self._commits.record(latency_ms, int(now_ms))
        self.commit_failures.succeeded()

    def commit_failed(self, error: ConsumerError, now_ms: int) -> None:
        """An attempt to store positions failed. Not one that came into a rebalance, which has a
        commit of its own.
        """
        self.commit_failures.failed(error, now_ms, is_refused=is_refusal(error.code))

    # What came of it.

    @property
    def cause(self) -> str | None:
        """Cause of the rebalance that is under way."""
        return self._cause

    @property
    def last_rebalance_ms(self) -> int | None:
        """When the last one was complete."""
        return self._rebalances.last_ms

    def figures(self, now_ms: int) -> Figures:
        """Under Java's names; times are milliseconds unless the name says otherwise."""
        rebalances, failures = self._rebalances, self._failures
        return {
            **_timed("join-time", "join", self._joins, now_ms),
            **_timed("sync-time", "sync", self._syncs, now_ms),
            **_timed("commit-latency", "commit", self._commits, now_ms),
            "rebalance-latency-avg": rebalances.average(now_ms),
            "rebalance-latency-max": rebalances.highest(now_ms),
            "rebalance-latency-total": rebalances.total,
            "rebalance-total": rebalances.count,
            "rebalance-rate-per-hour": rebalances.per_second(now_ms) * 3600,
            "failed-rebalance-total": failures.count,
            "failed-rebalance-rate-per-hour": failures.per_second(now_ms) * 3600,
            "last-rebalance-seconds-ago": rebalances.seconds_ago(now_ms),
        }


def _timed(time_name: str, name: str, sampled: Sampled, now_ms: int) -> Figures:
    return {
        f"{time_name}-avg": sampled.average(now_ms),
        f"{time_name}-max": sampled.highest(now_ms),
        f"{name}-rate": sampled.per_second(now_ms),
        f"{name}-total": sampled.count,
    }
