"""Computes all findings of a group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kohort.groups.steps import at_once
from kohort.insight.analysis.acts import act_steps
from kohort.insight.analysis.episodes import Moves
from kohort.insight.analysis.flapping import OwnershipIntervals
from kohort.insight.analysis.ownership import Idle, Ownership
from kohort.insight.analysis.rows import GroupHistory, Member, by_sequence, longest
from kohort.insight.analysis.summaries import group, needless, sequence_gaps, storms
from kohort.insight.analysis.wait_times import WaitTimes

DAY_MS: Final = 24 * 3600 * 1000

Rows: TypeAlias = Sequence[tuple[Any, ...]]
"""Rows of a table, without the columns that identify the group."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the findings, set by command-line options."""

    days: int = 35
    """Findings cover this many days before the group's newest event."""
    storm_quiet_ms: int = 60_000
    storm_size: int = 3
    flapping_moves: int = 3
    flapping_window_ms: int = 3_600_000


class Finder:
    """Computes a group's findings; its member rows are passed in portions.

    A large group's member rows, one per event and member, do not fit into memory. So they are
    passed in portions; between portions, only the necessary state is kept. Events stay in memory.
    """

    def __init__(self, history: GroupHistory, limits: Thresholds) -> None:
        """`history` has all rows of the group except member rows."""
        self._history, self._limits = history, limits
        rebalances, avoided = history.rebalances, history.avoided
        newest = longest([*(row.started_at for row in rebalances), *(row.at for row in avoided)])
        self._since = None if newest is None else newest - limits.days * DAY_MS
        self._recent = [row for row in rebalances if self._is_recent(row.started_at)]
        self._ownership = Ownership({row.sequence: row for row in rebalances}, self._since)
        self._idle, self._intervals, self._wait_times = Idle(), OwnershipIntervals(), WaitTimes()
        self._moves = Moves()
        self._next = 0
        """Index of the first recent rebalance whose members have not been added yet."""

    def add(self, members: Sequence[Member], *, is_last: bool) -> Rows:
        """Add all member rows of the next rebalances; return the finished rows of `partitions`."""
        owned = self._ownership.add(members, is_last=is_last)
        self._idle.add(owned)
        self._intervals.add(owned)
        recent_members = by_sequence([row for row in members if self._is_recent(row.started_at)])
        end = len(self._recent)
        if not is_last:
            last = members[-1].sequence if members else -1
            end = self._next
            while end < len(self._recent) and self._recent[end].sequence <= last:
                end += 1
        self._wait_times.add(self._recent[self._next : end], recent_members)
        self._moves.add(recent_members)
        self._next = end
        return owned

    def finish(self) -> dict[str, Rows]:
        """Return the rows of all tables but `partitions`, after all members were added."""
        limits, history, recent = self._limits, self._history, self._recent
        recent_avoided = [row for row in history.avoided if self._is_recent(row.at)]
        idle = self._idle.rows()
        bursts = storms(recent, quiet_ms=limits.storm_quiet_ms, size=limits.storm_size)
        return {
            "unavailability": idle,
            "storms": bursts,
            "flapping": self._intervals.flapping(
                moves=limits.flapping_moves, window_ms=limits.flapping_window_ms
            ),
            "slow_members": self._wait_times.slow_members(),
            "heartbeat_gaps": self._wait_times.heartbeat_gaps(),
            "acts": at_once(act_steps(recent, recent_avoided, self._moves)),
            "needless": needless(recent),
            "sequence_gaps": sequence_gaps(history.rebalances, history.avoided, history.running),
            "groups": group(history.rebalances, history.avoided, idle, bursts),
        }

    def _is_recent(self, at: int | None) -> bool:
        return at is not None and self._since is not None and at >= self._since


def compute_findings(history: GroupHistory, limits: Thresholds) -> dict[str, Rows]:
    """Return the rows of each table of FINDINGS by its name."""
    finder = Finder(history, limits)
    owned = finder.add(history.members, is_last=True)
    return {"partitions": owned, **finder.finish()}
