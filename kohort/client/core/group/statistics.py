"""Counts and durations of a consumer's group membership, under the names of the Java consumer.

Pure: times are passed in, in milliseconds of one monotonic clock. Rates, averages and maxima cover
the last two windows of 30 seconds, Java's defaults (metrics.num.samples and
metrics.sample.window.ms), so that dashboards made for Java consumers fit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from kohort.client.core.backoff import OngoingFailures
from kohort.client.core.errors import ConsumerError, is_refusal
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
from kohort.protocol.errors import ErrorCode

WINDOW_MS: Final = 30_000
WINDOW_COUNT: Final = 2
NEVER: Final = -1.0
"""Value of `-seconds-ago` metrics before the first event, as in Java."""

Figures = dict[str, float | None]
"""Values by name; None is an average or maximum of no values, for which Java has NaN."""


class RebalancePhase(Enum):
    NONE = "none"
    """No rebalance: the consumer is reading, or does not want to be a member."""
    FINDING_COORDINATOR = "finding coordinator"
    PREPARING = "preparing"
    """The member commits, and notifies the listener of revoked or lost partitions."""
    JOINING = "joining"
    """The member waits for the JoinGroup response, which is sent when all members have joined."""
    ASSIGNING = "assigning"
    """The member is the leader, and its assignor runs."""
    SYNCING = "syncing"
    """The member waits for the SyncGroup response with the leader's assignment."""
    APPLYING = "applying"
    """The member notifies the listener of its assignment."""


_PHASES: Final[Mapping[type[MemberAction], RebalancePhase]] = MappingProxyType(
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
    """Totals of all recorded values of one kind, and statistics of the recent values."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.last_ms: int | None = None
        """When the last value was recorded."""
        self._windows: deque[_Window] = deque(maxlen=WINDOW_COUNT)

    def record(self, value: float, now_ms: int) -> None:
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
        """The recent rate, averaged over one full window at least, as in Java."""
        windows = self._recent(now_ms)
        if not windows:
            return 0.0
        span_ms = max(now_ms - windows[0].begin_ms, (WINDOW_COUNT - 1) * WINDOW_MS)
        return sum(window.count for window in windows) * 1000 / span_ms

    def average(self, now_ms: int) -> float | None:
        """The average of the recent values; None if there are none."""
        windows = self._recent(now_ms)
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else None

    def highest(self, now_ms: int) -> float | None:
        """The maximum of the recent values; None if there are none."""
        return max((window.highest for window in self._recent(now_ms)), default=None)

    def seconds_ago(self, now_ms: int) -> float:
        """Seconds since the last value; NEVER if there is none."""
        return NEVER if self.last_ms is None else (now_ms - self.last_ms) / 1000

    def _recent(self, now_ms: int) -> list[_Window]:
        return [
            window
            for window in self._windows
            if now_ms - window.begin_ms < WINDOW_COUNT * WINDOW_MS
        ]


class HeartbeatStatistics:
    """Statistics of the heartbeat thread's requests, used only under the thread's lock."""

    def __init__(self) -> None:
        self._answers = Sampled()

    def answered(self, sent_ms: int, now_ms: int) -> None:
        """Record a successful heartbeat."""
        self._answers.record(now_ms - sent_ms, now_ms)

    def figures(self, now_ms: int) -> Figures:
        """Return the metrics under the Java consumer's names."""
        return {
            "heartbeat-rate": self._answers.per_second(now_ms),
            "heartbeat-total": self._answers.count,
            "heartbeat-response-time-max": self._answers.highest(now_ms),
            "last-heartbeat-seconds-ago": self._answers.seconds_ago(now_ms),
        }


class GroupStatistics:
    """Statistics of one consumer's joins, syncs, rebalances and commits."""

    def __init__(self) -> None:
        self.phase = RebalancePhase.NONE
        self.phase_since_ms: int | None = None
        """When the current phase began; None before the first."""
        self.unsettled_since_ms: int | None = None
        """Start of the present period outside the state STABLE; None while the member is STABLE."""
        self.rebalance_began_ms: int | None = None
        """When the current rebalance began; None if there is none."""
        self.last_cause: str | None = None
        self.last_duration_ms: int | None = None
        self._cause: str | None = None
        self._joins = Sampled()
        self._syncs = Sampled()
        self._rebalances = Sampled()
        self._failures = Sampled()
        self._commits = Sampled()
        self.commit_failures = OngoingFailures()
        self._join_sent_ms = 0
        self._sync_sent_ms = 0

    # Events.

    def begun(self, action: MemberAction, cause: str, now_ms: int) -> None:
        """Record which membership action begins. `cause`: why the consumer wants to join, "" if it
        does not; a rebalance keeps its first cause.
        """
        phase = _PHASES.get(type(action), RebalancePhase.NONE)
        # A member that needs to join but is idle is in a backoff, during which its phase continues.
        if not (cause and isinstance(action, Idle)):
            self.entered(phase, now_ms)
        if isinstance(action, Join):
            self._join_sent_ms = now_ms
            self.rebalance_begun(cause, now_ms)
        elif isinstance(action, Sync):
            self._sync_sent_ms = now_ms

    def entered(self, phase: RebalancePhase, now_ms: int) -> None:
        """Record the present phase."""
        if phase is not self.phase:
            self.phase = phase
            self.phase_since_ms = now_ms

    def rebalance_begun(self, cause: str, now_ms: int) -> None:
        """Record that a rebalance has begun, unless one is under way."""
        if self.rebalance_began_ms is None:
            self.rebalance_began_ms = now_ms
            self._cause = cause

    def rebalance_ended(self, now_ms: int) -> None:
        """Record that the rebalance, if there is one, is complete."""
        began_ms, self.rebalance_began_ms = self.rebalance_began_ms, None
        if began_ms is not None:
            self._rebalances.record(now_ms - began_ms, now_ms)
            self.last_duration_ms = now_ms - began_ms
            self.last_cause, self._cause = self._cause, None

    def join_answered(self, code: int, now_ms: int) -> None:
        """Record a JoinGroup response; NETWORK_EXCEPTION if there was none."""
        if code == ErrorCode.NONE:
            self._joins.record(now_ms - self._join_sent_ms, now_ms)
        elif code != ErrorCode.MEMBER_ID_REQUIRED:
            # MEMBER_ID_REQUIRED is the first half of every join, but Java counts it as a failure.
            self._failures.record(0, now_ms)

    def sync_answered(self, code: int, now_ms: int) -> None:
        """Record a SyncGroup response; NETWORK_EXCEPTION if there was none. Only a success ends the
        rebalance.
        """
        if code != ErrorCode.NONE:
            self._failures.record(0, now_ms)
            return
        self._syncs.record(now_ms - self._sync_sent_ms, now_ms)
        self.rebalance_ended(now_ms)

    def left(self, now_ms: int) -> None:
        """Record that the consumer left its group deliberately, which ends any rebalance."""
        self.rebalance_began_ms = self._cause = self.unsettled_since_ms = None
        self.phase = RebalancePhase.NONE
        self.phase_since_ms = now_ms

    def saw(self, now_ms: int, *, is_settled: bool) -> None:
        """Record whether the member's state is STABLE; called when this may have changed."""
        if is_settled:
            self.unsettled_since_ms = None
        elif self.unsettled_since_ms is None:
            self.unsettled_since_ms = now_ms

    def committed(self, latency_ms: float, now_ms: int) -> None:
        """Record a successful commit and how long its response took."""
        self._commits.record(latency_ms, now_ms)
        self.commit_failures.succeeded()

    def commit_failed(self, error: ConsumerError, now_ms: int) -> None:
        """Record a failed commit attempt, except for one that a rebalance interrupted."""
        self.commit_failures.failed(error, now_ms, is_refused=is_refusal(error.code))

    # Results.

    @property
    def cause(self) -> str | None:
        return self._cause

    @property
    def last_rebalance_ms(self) -> int | None:
        """When the last rebalance completed."""
        return self._rebalances.last_ms

    def figures(self, now_ms: int) -> Figures:
        """Return the metrics under the Java consumer's names; times without a unit are in ms."""
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
