"""Whether a consumer works, and if not, why: for probes, logs and people.

`Consumer.health()` creates a `Health` without any I/O, so it can be called at any time, also from a
web server's handler on the same loop. The verdict uses the consumer's own settings; programs with
other criteria can use the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kohort.client.core.backoff import OngoingFailure
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.statistics import RebalancePhase
from kohort.client.core.partitions import TopicPartition
from kohort.client.processing.figures import RunFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """The settings that the verdict depends on, in milliseconds."""

    session_timeout_ms: int
    max_poll_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of one consumer at one moment. All `seconds` are ages or durations; None: never.

    Without a group (`assign`, or no group_id) the fields about the group are empty.
    """

    client_id: str = ""
    """The setting; by default, the consumers of a process are kohort-1, kohort-2 and so on."""
    group_id: str | None = None
    """The setting."""
    group_instance_id: str | None = None
    """The setting."""
    is_subscribed: bool = False
    """Whether the consumer subscribes to topics, whose partitions its group assigns."""
    is_closed: bool = False
    """Whether the consumer was stopped."""
    is_assigned: bool = False
    """Whether partitions were assigned manually."""
    error: str | None = None
    """The error that every poll raises until the application subscribes again."""
    started_seconds_ago: float | None = None
    """Time since the consumer connected."""

    member_state: MemberState = MemberState.UNJOINED
    """unjoined, preparing rebalance, completing rebalance or stable; in the consumer group
    protocol unjoined, joining, reconciling or stable."""
    generation: int = -1
    """The generation, or the member epoch; -1: not a member."""
    member_id: str = ""
    """The id that the coordinator knows the member by."""
    is_leader: bool = False
    """Whether it computes the assignment of a classic group."""
    group_protocol: str | None = None
    """The group protocol in use, classic or consumer; None without a group."""
    unsettled_seconds: float | None = None
    """How long the consumer has been joining or outside its group; None for a stable member."""
    coordinator: str | None = None
    """`host:port`; None while unknown."""
    last_heartbeat_seconds_ago: float | None = None
    """Age of the last successful heartbeat."""
    last_poll_seconds_ago: float | None = None
    """Age of the last poll."""
    poll_failure: OngoingFailure | None = None
    """The error that polls keep raising; None once polls succeed again."""
    group_error: str | None = None
    """The error in the coordinator's last response; None after a successful one."""
    commit_failure: OngoingFailure | None = None
    """Why commits fail; None once a commit has succeeded."""
    failed_commits: int = 0
    """Number of failed commit attempts, in total."""

    rebalance_phase: RebalancePhase = RebalancePhase.NONE
    """finding coordinator, preparing, joining, assigning, syncing, applying or none."""
    rebalance_phase_seconds: float | None = None
    """How long the current `rebalance_phase` has taken so far."""
    rebalance_seconds: float | None = None
    """How long the current rebalance has taken so far; None if there is none."""
    rebalance_cause: str | None = None
    """This member's own reason to join, which it also sends to the broker (KIP-800)."""
    last_rebalance_cause: str | None = None
    """This member's reason to join in the last complete rebalance."""
    last_rebalance_duration_seconds: float | None = None
    """Time from this member's first JoinGroup to its assignment, in the last complete rebalance."""
    last_rebalance_seconds_ago: float | None = None
    """Time since the last complete rebalance ended."""

    lag: Mapping[TopicPartition, int | None] = dataclasses.field(default_factory=dict)
    """Records behind the end of each assigned partition, at the last fetch; None before that."""
    missing: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Subscribed topics and assigned partitions that do not exist, with the seconds they have been
    missing."""
    paused: frozenset[TopicPartition] = frozenset()
    """Partitions that `pause` stopped."""
    last_fetch_seconds_ago: Mapping[TopicPartition, float | None] = dataclasses.field(
        default_factory=dict
    )
    """Seconds since a broker last responded, per assigned partition. Partitions that are paused, or
    have records waiting for a poll, are not fetched."""
    unanswered_seconds: Mapping[TopicPartition, float] = dataclasses.field(default_factory=dict)
    """How long fetches of a partition have gone unanswered, or its leader has been unknown."""
    unread: Mapping[TopicPartition, OngoingFailure] = dataclasses.field(default_factory=dict)
    """Partitions that cannot be read: a poll raised the error, and no seek or successful read
    followed."""
    run: RunFigures | None = None
    """Figures of the current or last `Consumer.run`; None if there was no run."""
    limits: HealthLimits
    """The settings that the verdict depends on."""

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer reads."""
        return frozenset(self.lag)

    @property
    def total_lag(self) -> int | None:
        """The lag over all assigned partitions; None while any of them is unknown."""
        known = [lag for lag in self.lag.values() if lag is not None]
        return sum(known) if len(known) == len(self.lag) else None

    @property
    def is_healthy(self) -> bool:
        """Whether the consumer is working as configured, or about to. For alerts and dashboards."""
        return self.problem is None

    @property
    def is_alive(self) -> bool:
        """Whether the consumer can still recover by itself: false when the application does not
        poll, and after a fatal error or close. Only a restart helps then; for a liveness probe.
        """
        return not self._end_of_it()

    @property
    def is_ready(self) -> bool:
        """Whether it reads all its assigned partitions now; for a readiness probe."""
        return self.unready is None

    @property
    def problem(self) -> str | None:
        """Why the consumer is not healthy, as a sentence; None if it is."""
        if end := self._end_of_it():
            return end
        if problem := self._run_problem():
            return problem
        if not (self.is_subscribed or self.is_assigned):
            return None
        return (
            self._raised_problem()
            or self._membership_problem()
            or self._heartbeat_problem()
            or self._commit_problem()
            or self._fetch_problem()
        )

    @property
    def unready(self) -> str | None:
        """Why the consumer does not read all its assigned partitions, as a sentence; None if it
        does.
        """
        if problem := self.problem:
            return problem
        if self.last_poll_seconds_ago is None:
            return "It has not been polled yet."
        if self.is_subscribed and self.member_state is not MemberState.STABLE:
            phase = self.rebalance_phase.value
            return f"It is not a settled member of its group; rebalance phase: '{phase}'."
        return self._unfetched()

    def _unfetched(self) -> str | None:
        if self.missing:
            return f"There is no {' and no '.join(sorted(self.missing))}."
        for partition, seconds in self.unanswered_seconds.items():
            return f"No broker has answered for {_name(partition)} for {seconds:.0f} seconds."
        for partition, ago in self.last_fetch_seconds_ago.items():
            if ago is None and partition not in self.paused:
                return f"{_name(partition)} has not been fetched yet."
        return None

    def as_dict(self) -> dict[str, Any]:
        """All fields and the verdict, as JSON-compatible values."""
        values: dict[str, Any] = {
            name: getattr(self, name) for name in (*_JUDGEMENTS, "total_lag", *_PLAIN_FIELDS)
        }
        values["missing"] = dict(self.missing)
        values["poll_failure"] = _plain(self.poll_failure)
        values["commit_failure"] = _plain(self.commit_failure)
        values["member_state"] = self.member_state.value
        values["rebalance_phase"] = self.rebalance_phase.value
        values["run"] = None if self.run is None else self.run.as_dict()
        values["partitions"] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "lag": lag,
                "is_paused": partition in self.paused,
                "last_fetch_seconds_ago": self.last_fetch_seconds_ago.get(partition),
                "unanswered_seconds": self.unanswered_seconds.get(partition),
                "unread": _plain(self.unread.get(partition)),
            }
            for partition, lag in sorted(self.lag.items())
        ]
        return values

    def __str__(self) -> str:
        return self.problem or "The consumer is healthy."

    def _run_problem(self) -> str | None:
        if self.run is None:
            return None
        limits = self.limits
        return self.run.problem(
            session_timeout_ms=limits.session_timeout_ms,
            max_poll_interval_ms=limits.max_poll_interval_ms,
        )

    def _end_of_it(self) -> str | None:
        if self.is_closed:
            return "The consumer is closed."
        if self.error is not None:
            return f"The consumer cannot continue: {self.error}"
        if not (self.is_subscribed or self.is_assigned):
            return None
        limit_ms = self.limits.max_poll_interval_ms
        hanging = None if self.run is None else self.run.handler_problem(limit_ms)
        return hanging or self._poll_problem()

    def _poll_problem(self) -> str | None:
        limit_ms = self.limits.max_poll_interval_ms
        ago = self.last_poll_seconds_ago
        if ago is None:
            started = self.started_seconds_ago
            if started is None or started * 1000 < limit_ms:
                return None
            return (
                f"It was started {started:.0f} seconds ago and has never been polled,"
                f" max_poll_interval_ms is {limit_ms}: the application does not read."
            )
        if ago * 1000 < limit_ms:
            return None
        others = ", so other members get its partitions" if self.is_subscribed else ""
        return (
            f"The last poll was {ago:.0f} seconds ago, max_poll_interval_ms is {limit_ms}{others}."
            " Poll more often, process fewer records per poll, or raise max_poll_interval_ms."
        )

    def _raised_problem(self) -> str | None:
        limit_ms = self.limits.session_timeout_ms
        for partition, failing in self.unread.items():
            if failing.lasts(limit_ms):
                return f"{_name(partition)} cannot be read further, {_times(failing)}"
        if self.poll_failure is not None and self.poll_failure.lasts(limit_ms):
            return f"Polls raise errors, {_times(self.poll_failure)}"
        return None

    def _membership_problem(self) -> str | None:
        seconds = self.unsettled_seconds
        if seconds is None or not self.is_subscribed:
            return None
        if self.coordinator is None:
            limit_ms = self.limits.session_timeout_ms
            why = "the group's coordinator is unknown or does not answer"
        else:
            # A rebalance may take this long: the group waits for its slowest member.
            limit_ms = self.limits.max_poll_interval_ms
            why = f"rebalance phase '{self.rebalance_phase.value}'"
        if seconds * 1000 < limit_ms:
            return None
        last = f"; last error: {self.group_error}" if self.group_error else ""
        return (
            f"It has not been a settled member of its group for {seconds:.0f} seconds: {why}{last}."
        )

    def _heartbeat_problem(self) -> str | None:
        ago, limit_ms = self.last_heartbeat_seconds_ago, self.limits.session_timeout_ms
        is_member = self.member_state in {MemberState.STABLE, MemberState.RECONCILING}
        if not is_member or ago is None or ago * 1000 < limit_ms:
            return None
        return (
            f"No heartbeat was answered for {ago:.0f} seconds, session_timeout_ms is {limit_ms}:"
            " the group may have assigned its partitions to others."
        )

    def _commit_problem(self) -> str | None:
        failing = self.commit_failure
        if failing is None or not failing.lasts(self.limits.session_timeout_ms):
            return None
        return f"Commits fail, {_times(failing)}"

    def _fetch_problem(self) -> str | None:
        limit_ms = self.limits.session_timeout_ms
        late = [tp for tp, s in self.unanswered_seconds.items() if s * 1000 >= limit_ms]
        if not late:
            return None
        seconds = max(self.unanswered_seconds.values())
        return (
            f"No broker has answered for {len(late)} of {len(self.lag)} partitions for up to"
            f" {seconds:.0f} seconds, {_name(min(late))} among them."
        )


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _times(failing: OngoingFailure) -> str:
    times = "once" if failing.times == 1 else f"{failing.times} times"
    return f"{times} in {failing.seconds:.0f} seconds: {failing.error}"


def _plain(failing: OngoingFailure | None) -> dict[str, Any] | None:
    return None if failing is None else failing._asdict()


_JUDGEMENTS = ("is_healthy", "problem", "is_alive", "is_ready", "unready")
_PLAIN_FIELDS = [
    field.name
    for field in dataclasses.fields(Health)
    if field.type in {"str", "int", "bool", "float | None", "str | None"}
]
