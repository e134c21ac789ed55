"""Bursts of rebalances of one group, and who began them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from kohort.pipeline.plain.history import GONE, History, Row
from kohort.pipeline.plain.summaries import longest, total

QUIET_MS: Final = 60_000
"""Rebalances closer than this are one storm,"""
SIZE: Final = 3
"""if they are so many."""
_FEW: Final = 2
"""Processes, at least, that go and that come when a new version is rolled out."""


def storms(history: History, *, quiet_ms: int = QUIET_MS, size: int = SIZE) -> list[Row]:
    """The rows of `storms`: runs of `size` rebalances or more without `quiet_ms` between two."""
    members: dict[int, list[Row]] = defaultdict(list)
    for row in history.members:
        members[row["sequence"]].append(row)
    return [
        _storm(burst, [row for one in burst for row in members[one["sequence"]]])
        for burst in _bursts(history.rebalances, quiet_ms)
        if len(burst) >= size
    ]


def _bursts(rebalances: list[Row], quiet_ms: int) -> list[list[Row]]:
    bursts: list[list[Row]] = []
    ended_at_ms: int | None = None
    for row in rebalances:
        silence_ms = None if ended_at_ms is None else max(row["started_at_ms"] - ended_at_ms, 0)
        goes_on = silence_ms is not None and (silence_ms <= quiet_ms or row["follows"] is not None)
        if goes_on:
            bursts[-1].append(row)
        else:
            bursts.append([row])
        own_ms = row["started_at_ms"] if row["ended_at_ms"] is None else row["ended_at_ms"]
        ended_at_ms = own_ms if ended_at_ms is None else max(ended_at_ms, own_ms)
    return bursts


def _storm(burst: list[Row], members: list[Row]) -> Row:
    first, last = burst[0], burst[-1]
    started_at_ms = min(row["started_at_ms"] for row in burst)
    ends = [row["ended_at_ms"] for row in burst if row["ended_at_ms"] is not None]
    ended_at_ms = max(ends) if len(ends) == len(burst) else None
    by_client = Counter(
        (row["trigger_client_id"], row["trigger_host"])
        for row in burst
        if row["trigger_client_id"] is not None
    )
    clients = {client for client, _ in by_client}
    most = max(by_client.values(), default=None)
    main = max((client for (client, _), count in by_client.items() if count == most), default=None)
    comings = _comings(members)
    return {
        "first_sequence": first["sequence"],
        "last_sequence": last["sequence"],
        "started_at_ms": started_at_ms,
        "ended_at_ms": ended_at_ms,
        "duration_ms": None if ended_at_ms is None else max(ended_at_ms - started_at_ms, 0),
        "rebalance_count": len(burst),
        "follow_up_count": sum(row["follows"] is not None for row in burst),
        "needless_count": sum(bool(row["needless"]) for row in burst),
        "member_count": len(clients),
        "left_count": comings["left_count"],
        "new_count": comings["new_count"],
        "started_by": _started_by(burst, comings, most),
        "first_cause": first["trigger_kind"],
        "first_member_id": first["trigger_member_id"],
        "first_client_id": first["trigger_client_id"],
        "first_host": first["trigger_host"],
        "main_client_id": main,
        "main_client_count": most,
        "causes": sorted({row["trigger_kind"] for row in burst}),
        "stopped_total_ms": total(row["stopped_total_ms"] for row in burst),
        "stopped_longest_ms": longest(row["stopped_longest_ms"] for row in burst),
    }


def _comings(members: list[Row]) -> dict[str, int]:
    """Processes that went and that came: by instance id, or client id and host."""
    went = [row for row in members if row["fate"] in GONE or row["fate"] == "replaced"]
    came = [row for row in members if row["fate"] in {"new", "replaced"}]
    return {
        "left_count": len(went),
        "new_count": len(came),
        "processes_left": len({_name(row) for row in went}),
        "processes_new": len({_name(row) for row in came}),
    }


def _name(row: Row) -> str:
    parts = [part for part in (row["client_id"], row["host"]) if part is not None]
    return row["instance_id"] or "@".join(parts)


def _started_by(burst: list[Row], comings: dict[str, int], main_count: int | None) -> str:
    left, new = comings["processes_left"], comings["processes_new"]
    stated = sum(
        row["trigger_reason"] == "RESTART" and row["trigger_reason_source"] == "tag"
        for row in burst
    )
    if (left >= _FEW and new >= _FEW) or stated >= _FEW:
        return "deploy"
    if main_count is not None and main_count * 2 >= len(burst):
        return "member"
    if new > 0 and left == 0:
        return "scale_out"
    if left > 0 and new == 0:
        return "scale_in"
    return "several"
