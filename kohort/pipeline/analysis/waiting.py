"""The members that groups wait for, and how long it takes until members are heard of."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kohort.pipeline.analysis.rows import Member, Rebalance, longest, total


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


def slow_members(
    rebalances: Sequence[Rebalance], members: Mapping[int, Sequence[Member]]
) -> list[SlowMember]:
    """Members that were waited for, or missed the rebalance timeout."""
    waits = _waits(rebalances, members)
    processes = _by_process(members)
    found = []
    for process in dict.fromkeys([*processes, *waits]):
        rows, waited = processes.get(process, []), waits.get(process, [])
        missed = sum(row.fate == "rebalance_timeout" for row in rows)
        if not waited and not missed:
            continue
        delays = sorted(row.join_delay_ms for row in rows if row.join_delay_ms is not None)
        phases = [phase for phase, _ in waited]
        found.append(
            SlowMember(
                process,
                rows[-1].client_id if rows else None,
                rows[-1].host if rows else None,
                len(waited),
                total([ms for _, ms in waited]) or 0,
                longest([ms for _, ms in waited]) or 0,
                phases.count("join"),
                phases.count("sync"),
                len(delays),
                percentile(delays, 0.5) or 0,
                percentile(delays, 0.99) or 0,
                longest(delays) or 0,
                missed,
                longest([row.started_at for row in rows]),
            )
        )
    return found


def heartbeat_gaps(
    rebalances: Sequence[Rebalance], members: Mapping[int, Sequence[Member]]
) -> list[HeartbeatGap]:
    """Members that were told of a rebalance, or fell silent."""
    timeouts = {
        (row.sequence, row.trigger_member_id): row.trigger_session_timeout_ms
        for row in rebalances
        if row.trigger_kind == "session_expired"
    }
    found = []
    for process, rows in _by_process(members).items():
        told = sorted(row.told_ms for row in rows if row.told_ms is not None)
        expired = sum(row.fate == "session_expired" for row in rows)
        if told or expired:
            missed = [timeouts.get((row.sequence, row.member_id)) for row in rows]
            found.append(
                HeartbeatGap(
                    process,
                    len(told),
                    percentile(told, 0.5),
                    percentile(told, 0.9),
                    percentile(told, 0.99),
                    longest(told),
                    expired,
                    longest(missed),
                )
            )
    return found


def percentile(ordered: Sequence[int], share: float) -> int | None:
    """The smallest value that this share of them is not above; None of nothing."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else None


def _by_process(members: Mapping[int, Sequence[Member]]) -> dict[str | None, list[Member]]:
    """In the order of the rebalances."""
    found = defaultdict(list)
    for rows in members.values():
        for row in rows:
            found[row.process].append(row)
    return found


def _waits(
    rebalances: Sequence[Rebalance], members: Mapping[int, Sequence[Member]]
) -> dict[str | None, list[tuple[str, int | None]]]:
    """Phase and length of each wait, by process; several may be waited for at once."""
    found: dict[str | None, list[tuple[str, int | None]]] = defaultdict(list)
    for rebalance in rebalances:
        phase = rebalance.waited_phase
        if phase not in {"join", "sync"} or not rebalance.waited_member_ids:
            continue
        processes = {row.member_id: row.process for row in members.get(rebalance.sequence, ())}
        for member_id in rebalance.waited_member_ids:
            # Members that the event does not list are only known by their id.
            process = processes.get(member_id) or member_id
            found[process].append((phase or "", rebalance.waited_ms))
    return found
