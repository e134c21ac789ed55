"""Whether a consumer does its work, and if not, why not: for probes, logs and people.

`Consumer.health()` makes one of these without any I/O, so it can be asked at every moment, also
from a handler of a web server on the same loop. The judgement is made from the consumer's own
settings; somebody who wants another one has all the numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from client.core.membership import MemberState
from client.core.partitions import TopicPartition
from client.core.statistics import RebalancePhase
from client.processing.figures import RunFigures
from protocol.lazy_dataclass import dataclass


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
    error: str | None = None
    """What every poll raises from now on."""

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

    rebalance_phase: RebalancePhase = RebalancePhase.NONE
    rebalance_phase_seconds: float | None = None
    """How long it has been in that phase."""
    rebalance_seconds: float | None = None
    """How long the rebalance under way takes by now; None if there is none."""
    rebalance_cause: str | None = None
    """Of the one under way."""
    last_rebalance_cause: str | None = None
    last_rebalance_duration_seconds: float | None = None
    last_rebalance_seconds_ago: float | None = None

    lag: Mapping[TopicPartition, int | None] = dataclasses.field(default_factory=dict)
    """Records behind the end of each assigned partition; None: not known yet."""
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
        """Whether it does what it was asked to do, or is about to."""
        return self.problem is None

    @property
    def problem(self) -> str | None:
        """Why it is not healthy, in a sentence; None if it is."""
        if self.is_closed:
            return "The consumer is closed."
        if self.error is not None:
            return f"The consumer cannot go on: {self.error}"
        if problem := self._run_problem():
            return problem
        if not self.is_subscribed:
            return None
        return self._poll_problem() or self._membership_problem() or self._heartbeat_problem()

    def as_dict(self) -> dict[str, Any]:
        """All of it in what JSON knows, the judgement included."""
        values: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("is_healthy", "problem", "total_lag", *_PLAIN_FIELDS)
        }
        values["member_state"] = self.member_state.value
        values["rebalance_phase"] = self.rebalance_phase.value
        values["run"] = None if self.run is None else self.run.as_dict()
        values["partitions"] = [
            {"topic": one.topic, "partition": one.partition, "lag": lag}
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

    def _poll_problem(self) -> str | None:
        ago, limit_ms = self.last_poll_seconds_ago, self.limits.max_poll_interval_ms
        if ago is None or ago * 1000 < limit_ms:
            return None
        return (
            f"There was no poll for {ago:.0f} seconds, max_poll_interval_ms is {limit_ms}: others"
            " get its partitions. Poll more often, process less at a time, or set it higher."
        )

    def _membership_problem(self) -> str | None:
        seconds = self.unsettled_seconds
        if seconds is None:
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
        return f"It has not been a settled member of its group for {seconds:.0f} seconds: {why}."

    def _heartbeat_problem(self) -> str | None:
        ago, limit_ms = self.last_heartbeat_seconds_ago, self.limits.session_timeout_ms
        if self.member_state is not MemberState.STABLE or ago is None or ago * 1000 < limit_ms:
            return None
        return (
            f"No heartbeat was answered for {ago:.0f} seconds, session_timeout_ms is {limit_ms}:"
            " the group may have given its partitions to others."
        )


_PLAIN_FIELDS = [
    field.name
    for field in dataclasses.fields(Health)
    if field.name not in {"member_state", "rebalance_phase", "lag", "run", "limits"}
]
