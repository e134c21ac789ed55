"""The members that groups wait for, and how long it takes until members are heard of.

Both are read off what is kept of each process: its last row, and eight bytes for each time.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.insight.analysis.rows import Member, Rebalance, longest, total


class SlowMember(NamedTuple):
    """A row of the table `slow_members`, without its group."""

    process: str | None
    client_id: str | None
    host: str | None
    waited_for_count: int
    waited_for_total_ms: int
    waited_for_longest_ms: int
    for_join_count: int
    for_assignment_count: int
    join_count: int
    join_delay_p50_ms: int
    join_delay_p99_ms: int
    join_delay_longest_ms: int
    missed_count: int
    last_at: int | None
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None


class HeartbeatGap(NamedTuple):
    """A row of the table `heartbeat_gaps`, without its group."""

    process: str | None
    told_count: int
    told_p50_ms: int | None
    told_p90_ms: int | None
    told_p99_ms: int | None
    told_longest_ms: int | None
    expired_count: int
    expired_timeout_ms: int | None
    session_timeout_ms: int | None


@dataclass(slots=True)
class _Process:
    """What is known of a process by its rows."""

    last: Member | None = None
    last_at: int | None = None
    join_delays: array[int] = field(default_factory=lambda: array("q"))
    told: array[int] = field(default_factory=lambda: array("q"))
    missed_count: int = 0
    expired_count: int = 0
    expired_timeout_ms: int | None = None
    session_timeout_ms: int | None = None
    """The session timeout that its last join asked for."""
    rebalance_timeout_ms: int | None = None

    def take(self, row: Member, timeout_ms: int | None) -> None:
        self.last = row
        self.last_at = longest([self.last_at, row.started_at])
        if row.join_delay_ms is not None:
            self.join_delays.append(row.join_delay_ms)
        if row.told_ms is not None:
            self.told.append(row.told_ms)
        self.missed_count += row.fate == "rebalance_timeout"
        self.expired_count += row.fate == "session_expired"
        self.expired_timeout_ms = longest([self.expired_timeout_ms, timeout_ms])
        if row.session_timeout_ms is not None:
            self.session_timeout_ms = row.session_timeout_ms
        if row.rebalance_timeout_ms is not None:
            self.rebalance_timeout_ms = row.rebalance_timeout_ms


class WaitTimes:
    """The processes of a group, of rebalances that are taken in their order."""

    def __init__(self) -> None:
        self._processes: dict[str | None, _Process] = defaultdict(_Process)
        self._waits: dict[str | None, list[tuple[str, int | None]]] = defaultdict(list)
        """Phase and length of each wait; several may be waited for at once."""

    def take(
        self, rebalances: Sequence[Rebalance], members: Mapping[int, Sequence[Member]]
    ) -> WaitTimes:
        """Some more; `members` are by the sequence of their rebalance."""
        timeouts = {
            (row.sequence, row.trigger_member_id): row.trigger_session_timeout_ms
            for row in rebalances
            if row.trigger_kind == "session_expired"
        }
        for rows in members.values():
            for row in rows:
                timeout_ms = timeouts.get((row.sequence, row.member_id))
                self._processes[row.process].take(row, timeout_ms)
        for rebalance in rebalances:
            self._take_waits(rebalance, members.get(rebalance.sequence, ()))
        return self

    def _take_waits(self, rebalance: Rebalance, members: Sequence[Member]) -> None:
        phase = rebalance.waited_phase
        if phase not in {"join", "sync"} or not rebalance.waited_member_ids:
            return
        processes = {row.member_id: row.process for row in members}
        for member_id in rebalance.waited_member_ids:
            # Members that the event does not list are only known by their id.
            process = processes.get(member_id) or member_id
            self._waits[process].append((phase or "", rebalance.waited_ms))

    def slow_members(self) -> list[SlowMember]:
        """Members that were waited for, or missed the rebalance timeout."""
        found = []
        for process in dict.fromkeys([*self._processes, *self._waits]):
            one, waited = self._processes.get(process, _Process()), self._waits.get(process, [])
            if not waited and not one.missed_count:
                continue
            delays = sorted(one.join_delays)
            phases = [phase for phase, _ in waited]
            found.append(
                SlowMember(
                    process,
                    one.last.client_id if one.last is not None else None,
                    one.last.host if one.last is not None else None,
                    len(waited),
                    total([ms for _, ms in waited]) or 0,
                    longest([ms for _, ms in waited]) or 0,
                    phases.count("join"),
                    phases.count("sync"),
                    len(delays),
                    percentile(delays, 0.5) or 0,
                    percentile(delays, 0.99) or 0,
                    longest(delays) or 0,
                    one.missed_count,
                    one.last_at,
                    one.session_timeout_ms,
                    one.rebalance_timeout_ms,
                )
            )
        return found

    def heartbeat_gaps(self) -> list[HeartbeatGap]:
        """Members that were told of a rebalance, or fell silent."""
        found = []
        for process, one in self._processes.items():
            told = sorted(one.told)
            if told or one.expired_count:
                found.append(
                    HeartbeatGap(
                        process,
                        len(told),
                        percentile(told, 0.5),
                        percentile(told, 0.9),
                        percentile(told, 0.99),
                        longest(told),
                        one.expired_count,
                        one.expired_timeout_ms,
                        one.session_timeout_ms,
                    )
                )
        return found


def percentile(ordered: Sequence[int], share: float) -> int | None:
    """The smallest value that this share of them is not above; None of nothing."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else None
