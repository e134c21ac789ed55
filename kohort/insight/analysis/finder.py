"""All findings of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kohort.insight.analysis.flapping import OwnershipIntervals
from kohort.insight.analysis.ownership import Idle, Ownership
from kohort.insight.analysis.rows import GroupHistory, Member, by_sequence, longest
from kohort.insight.analysis.storms import Moved, moved_in, storms
from kohort.insight.analysis.summaries import causes, group, needless, sequence_gaps
from kohort.insight.analysis.wait_times import WaitTimes

DAY_MS: Final = 24 * 3600 * 1000

Rows: TypeAlias = Sequence[tuple[Any, ...]]
"""Rows of a table, without the columns of the group."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What counts as much; the command line says it."""

    days: int = 35
    """How far back from the newest event of a group findings go."""
    storm_quiet_ms: int = 60_000
    storm_size: int = 3
    flapping_moves: int = 3
    flapping_window_ms: int = 3_600_000


class Finder:
    """The findings of a group whose members are taken some at a time.

    There are as many as events times members: of a large group, they are the part that does not fit
    into memory. Events are held, and of members what the next ones need.
    """

    def __init__(self, history: GroupHistory, limits: Thresholds) -> None:
        """`history` has all but the members."""
        self._history, self._limits = history, limits
        rebalances, avoided = history.rebalances, history.avoided
        newest = longest([*(row.started_at for row in rebalances), *(row.at for row in avoided)])
        self._since = None if newest is None else newest - limits.days * DAY_MS
        self._lately = [row for row in rebalances if self._is_late(row.started_at)]
        self._ownership = Ownership({row.sequence: row for row in rebalances}, self._since)
        self._idle, self._stints, self._waiting = Idle(), OwnershipIntervals(), WaitTimes()
        self._moved: dict[int, list[Moved]] = {}
        self._next = 0
        """The first rebalance of late whose members are still to come."""

    def take(self, members: Sequence[Member], *, is_last: bool) -> Rows:
        """Takes all members of each of the next rebalances; returns rows of `partitions`."""
        owned = self._ownership.take(members, is_last=is_last)
        self._idle.take(owned)
        self._stints.take(owned)
        late = by_sequence([row for row in members if self._is_late(row.started_at)])
        end = len(self._lately)
        if not is_last:
            last = members[-1].sequence if members else -1
            end = self._next
            while end < len(self._lately) and self._lately[end].sequence <= last:
                end += 1
        self._waiting.take(self._lately[self._next : end], late)
        self._moved |= moved_in(late)
        self._next = end
        return owned

    def rest(self) -> dict[str, Rows]:
        """The rows of the other tables, when all members were taken."""
        limits, history, lately = self._limits, self._history, self._lately
        avoided_lately = [row for row in history.avoided if self._is_late(row.at)]
        idle = self._idle.rows()
        bursts = storms(lately, self._moved, quiet_ms=limits.storm_quiet_ms, size=limits.storm_size)
        return {
            "unavailability": idle,
            "storms": bursts,
            "flapping": self._stints.flapping(
                moves=limits.flapping_moves, window_ms=limits.flapping_window_ms
            ),
            "slow_members": self._waiting.slow_members(),
            "heartbeat_gaps": self._waiting.heartbeat_gaps(),
            "causes": causes(lately, avoided_lately),
            "needless": needless(lately),
            "sequence_gaps": sequence_gaps(history.rebalances, history.avoided, history.running),
            "groups": group(history.rebalances, history.avoided, idle, bursts),
        }

    def _is_late(self, at: int | None) -> bool:
        return at is not None and self._since is not None and at >= self._since


def findings_of(history: GroupHistory, limits: Thresholds) -> dict[str, Rows]:
    """The rows of each table of FINDINGS, by its name."""
    finder = Finder(history, limits)
    owned = finder.take(history.members, is_last=True)
    return {"partitions": owned, **finder.rest()}
