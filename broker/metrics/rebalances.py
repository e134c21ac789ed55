"""Counts what happens in groups, over all groups; an observer of the group coordinator."""

from collections import Counter
from typing import Final

from broker.core.group.events import (
    Event,
    GroupRemoved,
    JoinPhaseEnded,
    MemberRemoved,
    OffsetsRemoved,
    OffsetsStored,
    Outcome,
    RebalanceAvoided,
    RebalanceEnded,
    RebalanceStarted,
)
from broker.core.group.requests import Now
from broker.metrics.tally import HistogramTally

PHASE_BOUNDS_S: Final = (0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0)
"""Three seconds is the initial delay of a group, five minutes the usual limit for a rejoin."""


class RebalanceMetrics:
    """Numbers since the start. Causes and reasons are from fixed lists, so they can be labels."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        """By cause."""
        self.avoided: Counter[tuple[str, str]] = Counter()
        """By cause and stated reason."""
        self.members_removed: Counter[str] = Counter()
        """By cause."""
        self.completed_count = 0
        self.offsets_stored = 0
        self.offsets_expired = 0
        self.offsets_deleted = 0
        self.join_phase = HistogramTally(PHASE_BOUNDS_S)
        self.sync_phase = HistogramTally(PHASE_BOUNDS_S)
        self._phase_began_ms: dict[str, int] = {}
        """By group, while a rebalance is under way."""

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        match event:
            case OffsetsStored(count):
                self.offsets_stored += count
            case OffsetsRemoved(count, expired):
                if expired:
                    self.offsets_expired += count
                else:
                    self.offsets_deleted += count
            case RebalanceStarted(trigger):
                self.started[trigger.kind.value] += 1
                self._phase_began_ms[group_id] = now.ms
            case JoinPhaseEnded():
                self._end_phase(group_id, self.join_phase, now)
                self._phase_began_ms[group_id] = now.ms
            case RebalanceEnded(outcome):
                self.completed_count += outcome is Outcome.STABLE
                self._end_phase(group_id, self.sync_phase, now)
            case RebalanceAvoided(trigger):
                reason = trigger.reason.reason.name.lower()
                self.avoided[trigger.kind.value, reason] += 1
            case MemberRemoved(_, fate):
                self.members_removed[fate.value] += 1
            case GroupRemoved():
                self._phase_began_ms.pop(group_id, None)
            case _:
                pass

    def _end_phase(self, group_id: str, phase: HistogramTally, now: Now) -> None:
        began_ms = self._phase_began_ms.pop(group_id, None)
        if began_ms is not None:
            phase.observe((now.ms - began_ms) / 1000)
