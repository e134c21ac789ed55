"""All findings of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kohort.pipeline.analysis.flapping import flapping
from kohort.pipeline.analysis.ownership import intervals, unavailability
from kohort.pipeline.analysis.rows import GroupHistory, by_sequence, longest
from kohort.pipeline.analysis.storms import storms
from kohort.pipeline.analysis.summaries import causes, group, needless, sequence_gaps
from kohort.pipeline.analysis.waiting import heartbeat_gaps, slow_members

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


def found_in(history: GroupHistory, limits: Thresholds) -> dict[str, Rows]:
    """The rows of each table of FINDINGS, by its name."""
    rebalances, avoided = history.rebalances, history.avoided
    newest = longest([*(row.started_at for row in rebalances), *(row.at for row in avoided)])
    since = None if newest is None else newest - limits.days * DAY_MS

    def is_late(at: int | None) -> bool:
        return at is not None and since is not None and at >= since

    lately = [row for row in rebalances if is_late(row.started_at)]
    members = by_sequence([row for row in history.members if is_late(row.started_at)])
    avoided_lately = [row for row in avoided if is_late(row.at)]
    owned = intervals(history.members, {row.sequence: row for row in rebalances}, since)
    idle = unavailability(owned)
    bursts = storms(lately, members, quiet_ms=limits.storm_quiet_ms, size=limits.storm_size)
    return {
        "partitions": owned,
        "unavailability": idle,
        "storms": bursts,
        "flapping": flapping(
            owned, moves=limits.flapping_moves, window_ms=limits.flapping_window_ms
        ),
        "slow_members": slow_members(lately, members),
        "heartbeat_gaps": heartbeat_gaps(lately, members),
        "causes": causes(lately, avoided_lately),
        "needless": needless(lately),
        "sequence_gaps": sequence_gaps(rebalances, avoided, history.running),
        "groups": group(rebalances, avoided, idle, bursts),
    }
