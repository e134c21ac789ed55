"""What a group comes to: its figures, causes, needless rebalances, who caused them, and when."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from kohort.pipeline.plain.history import History, Row, process_of


def percentile(values: Iterable[int | None], share: float) -> int | None:
    """The smallest value that so large a share of them does not exceed, as Spark has it."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    place = -(-round(share * 100) * len(known) // 100)
    return known[max(place, 1) - 1]


def total(values: Iterable[int | None]) -> int:
    """The sum of those that are known."""
    return sum(value or 0 for value in values)


def longest(values: Iterable[int | None]) -> int:
    """The largest of those that are known; 0 of none."""
    return max((value or 0 for value in values), default=0)


def causes(history: History) -> list[Row]:
    """The rows of `causes`, the costliest first."""
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in history.rebalances:
        by_kind[row["trigger_kind"]].append(row)
    avoided: dict[str, list[Row]] = defaultdict(list)
    for row in history.avoided:
        avoided[row["trigger_kind"]].append(row)
    rows = [_cause(kind, by_kind[kind], avoided[kind]) for kind in {*by_kind, *avoided}]
    return sorted(
        rows,
        key=lambda row: (-row["stopped_total_ms"], -row["rebalance_count"], row["trigger_kind"]),
    )


def _cause(kind: str, happened: list[Row], avoided: list[Row]) -> Row:
    moments = [row["started_at_ms"] for row in happened] + [row["at_ms"] for row in avoided]
    return {
        "trigger_kind": kind,
        "rebalance_count": len(happened),
        "avoided_count": len(avoided),
        "needless_count": sum(bool(row["needless"]) for row in happened),
        "stopped_total_ms": total(row["stopped_total_ms"] for row in happened),
        "stopped_longest_ms": longest(row["stopped_longest_ms"] for row in happened),
        "duration_p50_ms": percentile((row["duration_ms"] for row in happened), 0.5),
        "last_at_ms": max(moments),
    }


def culprits(history: History) -> list[Row]:
    """How many rebalances of each cause are a process's doing, and what they cost; `processes` is
    how many processes have caused some.
    """
    by_process: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in history.rebalances:
        if row["trigger_member_id"] is not None:
            name = process_of(
                {part: row[f"trigger_{part}"] for part in ("instance_id", "client_id", "member_id")}
            )
            by_process[row["trigger_kind"], name].append(row)
    processes = Counter(kind for kind, _ in by_process)
    rows = [
        {
            "trigger_kind": kind,
            "process": name,
            "processes": processes[kind],
            "rebalance_count": len(caused),
            "stopped_total_ms": total(row["stopped_total_ms"] for row in caused),
        }
        for (kind, name), caused in by_process.items()
    ]
    return sorted(rows, key=lambda row: (-row["rebalance_count"], row["process"]))


def needless(history: History) -> list[Row]:
    """The rows of `rebalances` of a group with members that moved nothing."""
    return [row for row in history.rebalances if row["needless"]]


def figures(history: History) -> Row:
    """The row of `groups`, as far as the page has it."""
    sequences = [row["sequence"] for row in (*history.rebalances, *history.avoided)]
    moments = [row["started_at_ms"] for row in history.rebalances]
    moments += [row["at_ms"] for row in history.avoided]
    return {
        "first_at_ms": min(moments),
        "last_at_ms": max(moments),
        "missing_count": max(sequences) - min(sequences) + 1 - len(sequences),
        "rebalance_count": len(history.rebalances),
        "avoided_count": len(history.avoided),
        "needless_count": len(needless(history)),
        "stopped_total_ms": total(row["stopped_total_ms"] for row in history.rebalances),
        "stopped_longest_ms": longest(row["stopped_longest_ms"] for row in history.rebalances),
    }


def by_time(history: History, bin_ms: int) -> list[Row]:
    """Rebalances and stopped time of each `bin_ms` that has any, from the oldest on."""
    bins: dict[int, list[Row]] = defaultdict(list)
    for row in history.rebalances:
        bins[row["started_at_ms"] // bin_ms * bin_ms].append(row)
    return [
        {
            "at_ms": at_ms,
            "rebalance_count": len(bins[at_ms]),
            "stopped_total_ms": total(row["stopped_total_ms"] for row in bins[at_ms]),
        }
        for at_ms in sorted(bins)
    ]
