"""The members that a group waits for, and how long it takes until members are heard of."""

from __future__ import annotations

from collections import defaultdict

from kohort.pipeline.plain.history import History, Row, process_of
from kohort.pipeline.plain.summaries import longest, percentile, total


def slow_members(history: History) -> list[Row]:
    """The rows of `slow_members`: who was waited for longest comes first."""
    waits, joins = _waits(history), _by_process(history)
    rows = []
    for process in {*waits, *joins}:
        row = {"process": process, **_joined(joins[process]), **_waited(waits[process])}
        if row["waited_for_count"] or row["missed_count"]:
            rows.append(row)
    return sorted(rows, key=lambda row: (-row["waited_for_total_ms"], row["process"]))


def heartbeat_gaps(history: History) -> list[Row]:
    """The rows of `heartbeat_gaps`, the longest gap first."""
    expired = {
        (row["sequence"], row["trigger_member_id"]): row["trigger_session_timeout_ms"]
        for row in history.rebalances
        if row["trigger_kind"] == "session_expired"
    }
    rows = []
    for process, members in _by_process(history).items():
        told = [row["told_ms"] for row in members if row["told_ms"] is not None]
        gone = sum(row["fate"] == "session_expired" for row in members)
        if not told and not gone:
            continue
        missed = [expired.get((row["sequence"], row["member_id"])) for row in members]
        rows.append(
            {
                "process": process,
                "told_count": len(told),
                "told_p50_ms": percentile(told, 0.5),
                "told_p90_ms": percentile(told, 0.9),
                "told_p99_ms": percentile(told, 0.99),
                "told_longest_ms": max(told, default=None),
                "expired_count": gone,
                "expired_timeout_ms": max((ms for ms in missed if ms is not None), default=None),
            }
        )
    return sorted(rows, key=lambda row: (-(row["told_longest_ms"] or 0), row["process"]))


def _by_process(history: History) -> defaultdict[str, list[Row]]:
    by_process: defaultdict[str, list[Row]] = defaultdict(list)
    for row in history.members:
        by_process[process_of(row)].append(row)
    return by_process


def _waits(history: History) -> defaultdict[str, list[Row]]:
    """The rebalances that waited for each process; several may be waited for at once."""
    names = {(row["sequence"], row["member_id"]): process_of(row) for row in history.members}
    waits: defaultdict[str, list[Row]] = defaultdict(list)
    for row in history.rebalances:
        if row["waited_phase"] in {"join", "sync"}:
            for member_id in row["waited_member_ids"]:
                waits[names.get((row["sequence"], member_id), member_id)].append(row)
    return waits


def _joined(members: list[Row]) -> Row:
    delays = [row["join_delay_ms"] for row in members if row["join_delay_ms"] is not None]
    last = members[-1] if members else {}
    return {
        "client_id": last.get("client_id"),
        "host": last.get("host"),
        "join_count": len(delays),
        "join_delay_p50_ms": percentile(delays, 0.5),
        "join_delay_p99_ms": percentile(delays, 0.99),
        "join_delay_longest_ms": max(delays, default=None),
        "missed_count": sum(row["fate"] == "rebalance_timeout" for row in members),
        "last_at_ms": last.get("started_at_ms"),
    }


def _waited(waits: list[Row]) -> Row:
    return {
        "waited_for_count": len(waits),
        "waited_for_total_ms": total(row["waited_ms"] for row in waits),
        "waited_for_longest_ms": longest(row["waited_ms"] for row in waits),
        "for_join_count": sum(row["waited_phase"] == "join" for row in waits),
        "for_assignment_count": sum(row["waited_phase"] == "sync" for row in waits),
    }
