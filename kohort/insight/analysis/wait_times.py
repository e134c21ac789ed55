"""Measures, per client process, how long its group waited for it, and how long it took to learn of
rebalances by heartbeat or poll.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kohort.insight.analysis.rows import Member, Rebalance, longest, total
from kohort.insight.tables.findings import HeartbeatGap, SlowMember

_OF_MEMBERS: Final = frozenset({"join", "sync", "revoke", "tell", "give"})
"""Phases that members end with their requests. The last three are phases of consumer groups."""


@dataclass(slots=True)
class _Process:
    last: Member | None = None
    last_at: int | None = None
    join_delays: array[int] = field(default_factory=lambda: array("q"))
    notice_ms: array[int] = field(default_factory=lambda: array("q"))
    missed_count: int = 0
    expired_count: int = 0
    expired_timeout_ms: int | None = None
    session_timeout_ms: int | None = None
    """The session timeout that the process requested in its last join."""
    rebalance_timeout_ms: int | None = None

    def add(self, row: Member, timeout_ms: int | None) -> None:
        self.last = row
        self.last_at = longest([self.last_at, row.started_at])
        if row.join_delay_ms is not None:
            self.join_delays.append(row.join_delay_ms)
        # New members of a consumer group are notified immediately.
        if row.told_ms is not None and row.fate != "new":
            self.notice_ms.append(row.told_ms)
        self.missed_count += row.fate == "rebalance_timeout"
        self.expired_count += row.fate == "session_expired"
        self.expired_timeout_ms = longest([self.expired_timeout_ms, timeout_ms])
        if row.session_timeout_ms is not None:
            self.session_timeout_ms = row.session_timeout_ms
        if row.rebalance_timeout_ms is not None:
            self.rebalance_timeout_ms = row.rebalance_timeout_ms


class WaitTimes:
    """Collects the times of a group's processes; rebalances are added in order."""

    def __init__(self) -> None:
        self._processes: dict[str | None, _Process] = defaultdict(_Process)
        self._waits: dict[str | None, list[tuple[str, int | None]]] = defaultdict(list)
        """Phase and length of each wait, by process; a group may wait for several processes at
        once."""

    def add(
        self, rebalances: Sequence[Rebalance], members: Mapping[int, Sequence[Member]]
    ) -> WaitTimes:
        """Add the next rebalances; `members` has their member rows, by sequence number."""
        timeouts = {
            (row.sequence, row.trigger_member_id): row.trigger_session_timeout_ms
            for row in rebalances
            if row.trigger_kind == "session_expired"
        }
        for rows in members.values():
            for row in rows:
                timeout_ms = timeouts.get((row.sequence, row.member_id))
                self._processes[row.process].add(row, timeout_ms)
        for rebalance in rebalances:
            self._add_waits(rebalance, members.get(rebalance.sequence, ()))
        return self

    def _add_waits(self, rebalance: Rebalance, members: Sequence[Member]) -> None:
        phase = rebalance.waited_phase
        if phase not in _OF_MEMBERS or not rebalance.waited_member_ids:
            return
        processes = {row.member_id: row.process for row in members}
        for member_id in rebalance.waited_member_ids:
            # Members that the event does not list are known only by their id.
            process = processes.get(member_id) or member_id
            self._waits[process].append((phase or "", rebalance.waited_ms))

    def slow_members(self) -> list[SlowMember]:
        """Return the processes that the group waited for, or that missed the rebalance timeout."""
        rows = []
        for process in dict.fromkeys([*self._processes, *self._waits]):
            state, waited = self._processes.get(process, _Process()), self._waits.get(process, [])
            if not waited and not state.missed_count:
                continue
            delays = sorted(state.join_delays)
            phases = [phase for phase, _ in waited]
            rows.append(
                SlowMember(
                    process,
                    state.last.client_id if state.last is not None else None,
                    state.last.host if state.last is not None else None,
                    len(waited),
                    total([ms for _, ms in waited]) or 0,
                    longest([ms for _, ms in waited]) or 0,
                    phases.count("join"),
                    phases.count("sync"),
                    len(delays),
                    percentile(delays, 0.5) or 0,
                    percentile(delays, 0.99) or 0,
                    longest(delays) or 0,
                    state.missed_count,
                    state.last_at,
                    state.session_timeout_ms,
                    state.rebalance_timeout_ms,
                )
            )
        return rows

    def heartbeat_gaps(self) -> list[HeartbeatGap]:
        """Return how long each client process took to notice rebalances, and how often its session
        expired. Processes without either are left out.
        """
        rows = []
        for process, state in self._processes.items():
            notice_ms = sorted(state.notice_ms)
            if notice_ms or state.expired_count:
                rows.append(
                    HeartbeatGap(
                        process,
                        len(notice_ms),
                        percentile(notice_ms, 0.5),
                        percentile(notice_ms, 0.9),
                        percentile(notice_ms, 0.99),
                        longest(notice_ms),
                        state.expired_count,
                        state.expired_timeout_ms,
                        state.session_timeout_ms,
                    )
                )
        return rows


def percentile(ordered: Sequence[int], share: float) -> int | None:
    """Return the percentile of `ordered` by the nearest-rank method; None if it is empty."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else None
