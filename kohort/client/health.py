"""Whether a consumer does its work, and if not, why not: for probes, logs and people.

`Consumer.health()` makes one of these without any I/O, so it can be asked at every moment, also
from a handler of a web server on the same loop. The judgement is made from the consumer's own
settings; a program that wants another one has all the numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kohort.client.core.failing import Failing
from kohort.client.core.group.membership import MemberState
from kohort.client.core.group.statistics import RebalancePhase
from kohort.client.core.partitions import TopicPartition
from kohort.client.processing.figures import RunFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """The settings that say what is too long, in milliseconds."""

    session_timeout_ms: int
    max_poll_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One consumer at one moment. All `seconds` are how long ago or how long it took; None: never.

    Without a group (`assign`, or no group_id) the fields about the group are empty.
    """

    client_id: str = ""
    group_id: str | None = None
    group_instance_id: str | None = None
    is_subscribed: bool = False
    """Whether it wants partitions from its group."""
    is_closed: bool = False
    is_assigned: bool = False
    """Whether it reads partitions of its own choice."""
    error: str | None = None
    """What every poll raises until the application subscribes again."""
    started_seconds_ago: float | None = None

    member_state: MemberState = MemberState.UNJOINED
    generation: int = -1
    member_id: str = ""
    is_leader: bool = False
    unsettled_seconds: float | None = None
    """For how long it has been joining, or out of its group; None if it is a settled member."""
    coordinator: str | None = None
    """`host:port`; None while it is not known."""
    last_heartbeat_seconds_ago: float | None = None
    """The last successful one."""
    last_poll_seconds_ago: float | None = None
    poll_failure: Failing | None = None
    """What polls raise again and again, and no poll was without for a while."""
    group_error: str | None = None
    """What the coordinator has last said in place of an answer; None once it has answered."""
    commit_failure: Failing | None = None
    """Why positions are not stored; None once a commit has succeeded."""
    failed_commits: int = 0
    """Attempts that failed, in all."""

    rebalance_phase: RebalancePhase = RebalancePhase.NONE
    rebalance_phase_seconds: float | None = None
    """How long it has been in that phase."""
    rebalance_seconds: float | None = None
    """How long the rebalance under way takes by now; None if there is none."""
    rebalance_cause: str | None = None
    """Cause of the rebalance under way."""
    last_rebalance_cause: str | None = None
    last_rebalance_duration_seconds: float | None = None
    last_rebalance_seconds_ago: float | None = None

    lag: Mapping[TopicPartition, int | None] = dataclasses.field(default_factory=dict)
    """Records behind the end of each assigned partition, at the last fetch; None: not known yet."""
    missing: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Topics that were subscribed to by name, and assigned partitions, that are not there; for how
    many seconds."""
    paused: frozenset[TopicPartition] = frozenset()
    last_fetch_seconds_ago: Mapping[TopicPartition, float | None] = dataclasses.field(
        default_factory=dict
    )
    """Since a broker has last answered for each assigned partition. What waits here, unpolled, is
    not asked for; nor is what is paused."""
    unanswered_seconds: Mapping[TopicPartition, float] = dataclasses.field(default_factory=dict)
    """For how long no broker has answered for partitions that were asked for, or it is not known
    which to ask."""
    unread: Mapping[TopicPartition, Failing] = dataclasses.field(default_factory=dict)
    """Partitions whose error was raised, and that were neither sought nor read on since."""
    run: RunFigures | None = None
    """What `Consumer.run` does, or did last; None if there was no run."""
    limits: HealthLimits

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that it reads."""
        return frozenset(self.lag)

    @property
    def total_lag(self) -> int | None:
        """Over all assigned partitions; None as long as one of them is not known."""
        known = [lag for lag in self.lag.values() if lag is not None]
        return sum(known) if len(known) == len(self.lag) else None

    @property
    def is_healthy(self) -> bool:
        """Whether it does what it was asked to do, or is about to. For alerts, and for people."""
        return self.problem is None

    @property
    def is_alive(self) -> bool:
        """Whether there is anything to wait for: false when the application does not poll, and when
        the consumer has come to its end. A new process mends that, and nothing else of all that
        is told here; for a liveness probe.
        """
        return not self._end_of_it()

    @property
    def is_ready(self) -> bool:
        """Whether it reads all that it was given, at this moment; for a readiness probe."""
        return self.unready is None

    @property
    def problem(self) -> str | None:
        """Why it is not healthy, in a sentence; None if it is."""
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
        """Why it does not read all that it was given, in a sentence; None if it does."""
        if problem := self.problem:
            return problem
        if self.last_poll_seconds_ago is None:
            return "It has not been polled yet."
        if self.is_subscribed and self.member_state is not MemberState.STABLE:
            return f"It is no settled member of its group: it is at '{self.rebalance_phase.value}'."
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
        """All of it in what JSON knows, the judgement included."""
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
                "topic": one.topic,
                "partition": one.partition,
                "lag": lag,
                "is_paused": one in self.paused,
                "last_fetch_seconds_ago": self.last_fetch_seconds_ago.get(one),
                "unanswered_seconds": self.unanswered_seconds.get(one),
                "unread": _plain(self.unread.get(one)),
            }
            for one, lag in sorted(self.lag.items())
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
            return f"The consumer cannot go on: {self.error}"
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
        others = ": others get its partitions" if self.is_subscribed else ""
        return (
            f"There was no poll for {ago:.0f} seconds, max_poll_interval_ms is {limit_ms}{others}."
            " Poll more often, process less at a time, or set it higher."
        )

    def _raised_problem(self) -> str | None:
        limit_ms = self.limits.session_timeout_ms
        for partition, failing in self.unread.items():
            if failing.lasts(limit_ms):
                return f"{_name(partition)} cannot be read on, {_times(failing)}"
        if self.poll_failure is not None and self.poll_failure.lasts(limit_ms):
            return f"Polls raise, {_times(self.poll_failure)}"
        return None

    def _membership_problem(self) -> str | None:
        seconds = self.unsettled_seconds
        if seconds is None or not self.is_subscribed:
            return None
        if self.coordinator is None:
            limit_ms = self.limits.session_timeout_ms
            why = "the broker that coordinates its group is not known, or does not answer"
        else:
            # So long a rebalance may take: the group waits for its slowest member.
            limit_ms = self.limits.max_poll_interval_ms
            why = f"it is at '{self.rebalance_phase.value}'"
        if seconds * 1000 < limit_ms:
            return None
        last = f"; the last error was {self.group_error}" if self.group_error else ""
        return (
            f"It has not been a settled member of its group for {seconds:.0f} seconds: {why}{last}."
        )

    def _heartbeat_problem(self) -> str | None:
        ago, limit_ms = self.last_heartbeat_seconds_ago, self.limits.session_timeout_ms
        if self.member_state is not MemberState.STABLE or ago is None or ago * 1000 < limit_ms:
            return None
        return (
            f"No heartbeat was answered for {ago:.0f} seconds, session_timeout_ms is {limit_ms}:"
            " the group may have given its partitions to others."
        )

    def _commit_problem(self) -> str | None:
        failing = self.commit_failure
        if failing is None or not failing.lasts(self.limits.session_timeout_ms):
            return None
        return f"Positions are not stored, {_times(failing)}"

    def _fetch_problem(self) -> str | None:
        limit_ms = self.limits.session_timeout_ms
        late = [one for one, s in self.unanswered_seconds.items() if s * 1000 >= limit_ms]
        if not late:
            return None
        seconds = max(self.unanswered_seconds.values())
        return (
            f"No broker has answered for {len(late)} of {len(self.lag)} partitions for up to"
            f" {seconds:.0f} seconds, {_name(min(late))} the first of them."
        )


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _times(failing: Failing) -> str:
    return f"{failing.times} times in {failing.seconds:.0f} seconds: {failing.error}"


def _plain(failing: Failing | None) -> dict[str, Any] | None:
    return None if failing is None else failing._asdict()


_JUDGEMENTS = ("is_healthy", "problem", "is_alive", "is_ready", "unready")
_PLAIN_FIELDS = [
    field.name
    for field in dataclasses.fields(Health)
    if field.type in {"str", "int", "bool", "float | None", "str | None"}
]
