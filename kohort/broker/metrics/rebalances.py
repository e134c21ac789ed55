"""Counts group events for the metrics; observes the group coordinator and the rebalance history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, ClassVar, Final

from kohort.broker.metrics.group_counts import CountsByGroup
from kohort.broker.metrics.tally import HistogramTally
from kohort.groups.events import (
    CauseAdded,
    Event,
    GroupRemoved,
    GroupRestored,
    JoinPhaseEnded,
    MemberRemoved,
    OffsetsRemoved,
    OffsetsStored,
    RebalanceAvoided,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
    RemovalReason,
    ShareEpochBumped,
    Trigger,
)
from kohort.groups.kinds import GroupKind
from kohort.groups.reasons import POLL_TIMEOUT
from kohort.groups.requests import UNFETCHED_LEAST_MS, Now

if TYPE_CHECKING:
    from kohort.groups.history.model import HistoryRecord, RebalanceRecord

PHASE_BOUNDS_S: Final = (0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0)
"""Bounds of the buckets. They include 3 s, the default initial delay of a group, and 5 min, the
usual rebalance timeout."""

GROUPS_MAX_DEFAULT: Final = 1_000


class Running:
    """A rebalance in progress; it ends when the group is Stable or Empty."""

    __slots__ = ("began_ms", "is_syncing", "kind", "phase_began_ms", "since_wall_ms")

    def __init__(self, now: Now, kind: GroupKind) -> None:
        self.kind = kind
        self.since_wall_ms = now.wall_ms
        self.began_ms = now.ms
        self.phase_began_ms = now.ms
        self.is_syncing = False


class RebalanceMetrics:
    """Counters since the start. Causes and reasons are from fixed lists, so they can be labels."""

    def __init__(self, groups_max: int = GROUPS_MAX_DEFAULT) -> None:
        """`groups_max` is the maximum number of groups with their own counters."""
        self.started: Counter[str] = Counter()
        self.avoided: Counter[tuple[str, str]] = Counter()
        """Avoided rebalances by cause and stated reason."""
        self.members_removed: Counter[str] = Counter()
        self.completed_count = 0
        """Completed rebalances of classic groups."""
        self.bump_count = 0
        """Number of group epoch bumps of consumer groups."""
        self.share_bump_count = 0
        """Number of group epoch bumps of share groups."""
        self.offsets_stored = 0
        self.offsets_expired = 0
        self.offsets_deleted = 0
        self.stopped_ms = 0
        """Time that members were stopped by rebalances, summed over members."""
        self.partitions_moved = 0
        self.join_phase = HistogramTally(PHASE_BOUNDS_S)
        self.sync_phase = HistogramTally(PHASE_BOUNDS_S)
        self.whole = HistogramTally(PHASE_BOUNDS_S)
        """Durations of rebalances until the group is Stable or Empty. If rebalances supersede each
        other, they count as one, from the start of the first."""
        self.of_consumers = {
            phase: HistogramTally(PHASE_BOUNDS_S)
            for phase in ("assign", "reconcile", "revoke", "notice")
        }
        """Durations of the phases of consumer groups' rebalances, by phase."""
        self.running: dict[str, Running] = {}
        """Running rebalances by group, oldest first; dropped with the group."""
        self.by_group = CountsByGroup(groups_max)
        self.observed: Collection[type[Event]] = frozenset(self._handlers)

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        """Count an event; takes less than a microsecond for events that every request causes."""
        self._handlers[event.__class__](self, group_id, event, now)

    def on_record(self, record: HistoryRecord) -> None:
        """Count the stopped time and moved partitions of a rebalance that has ended. The history
        calls this with each new record.
        """
        from kohort.groups.history.model import RebalanceRecord  # noqa: PLC0415 - not for a start.

        if not isinstance(record, RebalanceRecord):
            return
        counts = self.by_group.of_past(record.group)
        self.stopped_ms += record.stopped.total_ms
        counts.stopped_ms += record.stopped.total_ms
        if record.partitions.known:
            self.partitions_moved += record.partitions.moved
            counts.partitions_moved += record.partitions.moved
        if record.group_type == GroupKind.CONSUMER.value:
            self._add_phases(record)

    def _add_phases(self, record: RebalanceRecord) -> None:
        def add(phase: str, since_ms: int | None, until_ms: int | None) -> None:
            if since_ms is not None and until_ms is not None and until_ms >= since_ms:
                self.of_consumers[phase].observe((until_ms - since_ms) / 1000)

        times = record.timeline
        add("assign", 0, times.assigned_ms)
        if record.outcome.value == "stable":
            add("reconcile", times.durable_ms, times.finished_ms)
        for member in record.members:
            add("revoke", member.told_ms, member.revoked_ms)
            if member.epoch_before is not None:
                add("notice", times.durable_ms, member.told_ms)

    def _on_offsets_stored(self, _group_id: str, event: OffsetsStored, _now: Now) -> None:
        self.offsets_stored += event.offset_count

    def _on_offsets_removed(self, _group_id: str, event: OffsetsRemoved, _now: Now) -> None:
        if event.expired:
            self.offsets_expired += event.offset_count
        else:
            self.offsets_deleted += event.offset_count

    def _on_started(self, group_id: str, event: RebalanceStarted, now: Now) -> None:
        cause = event.trigger.kind.value
        self.started[cause] += 1
        counts = self.by_group.of(group_id)
        counts.count("rebalances", (cause, event.kind.value))
        counts.poll_timeouts += _has_not_fetched(event.trigger)
        if event.kind is GroupKind.CONSUMER:
            self._count_bump(group_id, cause)
        running = self.running.get(group_id)
        if running is None:
            self.running[group_id] = Running(now, event.kind)
        else:
            running.kind = event.kind
            running.phase_began_ms = now.ms
            running.is_syncing = False

    def _on_cause(self, group_id: str, event: CauseAdded, _now: Now) -> None:
        self.by_group.of(group_id).poll_timeouts += _has_not_fetched(event.trigger)
        running = self.running.get(group_id)
        if running is not None and running.kind is GroupKind.CONSUMER:
            self._count_bump(group_id, event.trigger.kind.value)

    def _count_bump(self, group_id: str, cause: str) -> None:
        self.bump_count += 1
        self.by_group.of(group_id).count("bumps", cause)

    def _on_share_bumped(self, group_id: str, event: ShareEpochBumped, _now: Now) -> None:
        self.share_bump_count += 1
        self.by_group.of(group_id).count("bumps", event.trigger.kind.value)

    def _on_join_phase_ended(self, group_id: str, _event: JoinPhaseEnded, now: Now) -> None:
        running = self.running.get(group_id)
        if running is not None:
            self.join_phase.observe((now.ms - running.phase_began_ms) / 1000)
            running.phase_began_ms = now.ms
            running.is_syncing = True

    def _on_ended(self, group_id: str, event: RebalanceEnded, now: Now) -> None:
        running = self.running.get(group_id)
        is_classic = running is None or running.kind is not GroupKind.CONSUMER
        self.completed_count += is_classic and event.outcome is RebalanceEnd.STABLE
        if running is None:
            return
        if is_classic:
            # A group that became empty was in its join phase until the end.
            phase = self.sync_phase if running.is_syncing else self.join_phase
            phase.observe((now.ms - running.phase_began_ms) / 1000)
        if event.outcome is not RebalanceEnd.STORE_FAILED:
            self.whole.observe((now.ms - running.began_ms) / 1000)
            del self.running[group_id]

    def _on_avoided(self, group_id: str, event: RebalanceAvoided, _now: Now) -> None:
        reason = event.trigger.reason.reason.name.lower()
        self.avoided[event.trigger.kind.value, reason] += 1
        self.by_group.of(group_id).count("avoided", reason)

    def _on_member_removed(self, group_id: str, event: MemberRemoved, now: Now) -> None:
        cause = event.fate.value
        self.members_removed[cause] += 1
        counts = self.by_group.of(group_id)
        counts.count("removed", cause)
        counts.poll_timeouts += self._has_stopped_polling(group_id, event, now)

    def _has_stopped_polling(self, group_id: str, event: MemberRemoved, now: Now) -> bool:
        if event.fate is not RemovalReason.LEFT:
            return event.fate is RemovalReason.REBALANCE_TIMEOUT
        running = self.running.get(group_id)
        is_awaited = (
            running is not None
            and running.kind is not GroupKind.CONSUMER
            and not running.is_syncing
            and now.ms - running.phase_began_ms >= UNFETCHED_LEAST_MS
        )
        return is_awaited or POLL_TIMEOUT in (event.text or "")

    def _on_restored(self, group_id: str, _event: GroupRestored, _now: Now) -> None:
        self.running.pop(group_id, None)

    def _on_removed(self, group_id: str, _event: GroupRemoved, now: Now) -> None:
        self.running.pop(group_id, None)
        self.by_group.remove(group_id, now.ms)

    _handlers: ClassVar[dict[type[Event], Callable[..., None]]] = {
        OffsetsStored: _on_offsets_stored,
        OffsetsRemoved: _on_offsets_removed,
        RebalanceStarted: _on_started,
        CauseAdded: _on_cause,
        ShareEpochBumped: _on_share_bumped,
        JoinPhaseEnded: _on_join_phase_ended,
        RebalanceEnded: _on_ended,
        RebalanceAvoided: _on_avoided,
        MemberRemoved: _on_member_removed,
        GroupRestored: _on_restored,
        GroupRemoved: _on_removed,
    }


def _has_not_fetched(trigger: Trigger) -> bool:
    """Whether a member that left had sent no Fetch for a long time, and stated no poll timeout."""
    return trigger.unfetched_ms is not None and POLL_TIMEOUT not in trigger.detail
