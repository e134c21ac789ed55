"""Selects the events of one group's history, and computes figures from them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kohort.groups.history.names import REBALANCE
from kohort.insight.analysis.rows import GroupHistory, read_histories, unique_events
from kohort.insight.report.contents import Row


class History:
    """The complete events of one group, and the rows from which findings are computed."""

    def __init__(self, group: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Read records in any order; of several with the same sequence, the last one is used.

        Raises:
            ValueError: a value of a record has another type than its field.
        """
        self.events = unique_events(records)
        self.group = group
        try:
            histories = read_histories("", self.events)
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"not a history: {error!r}") from error
        self.rows = histories[0] if histories else GroupHistory("", group)
        if len(histories) > 1:
            raise ValueError(f"records of {len(histories)} groups, not of {group!r} alone")

    def rebalances(self) -> list[Row]:
        """Return a row for each rebalance, for charts and texts; `event` is the full record."""
        return [
            {
                "sequence": event["sequence"],
                "started_at_ms": event["started_at_ms"],
                "trigger_certainty": event["trigger"].get("certainty"),
                "stopped_total_ms": (event.get("stopped") or {}).get("total_ms"),
                "protocol": event.get("protocol"),
                "group_type": event.get("group_type"),
                "event": event,
            }
            for event in self.events
            if event["kind"] == REBALANCE
        ]


_SUMMED: Final = (
    *("rebalance_count", "second_half_count", "avoided_count", "needless_count"),
    *("stopped_total_ms", "likely_count", "unclear_count"),
)


def causes(acts: Sequence[Row]) -> list[Row]:
    """Sum up the causes of rebalances (deployments, crashes, ...) in one row per kind."""
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for act in acts:
        by_kind[act["kind"]].append(act)
    return [
        {name: sum(act[name] or 0 for act in of_kind) for name in _SUMMED}
        | {
            "kind": kind,
            "act_count": len(of_kind),
            "stopped_longest_ms": max(act["stopped_longest_ms"] for act in of_kind),
            "last_at_ms": of_kind[-1]["started_at_ms"],
            "process_counts": sorted(
                Counter(name for act in of_kind for name in act["processes"]).items(),
                key=lambda counted: (-counted[1], counted[0]),
            ),
        }
        for kind, of_kind in by_kind.items()
    ]


def by_time(rebalances: Sequence[Row], bin_ms: int) -> list[Row]:
    """Sum up rebalances by periods of `bin_ms`, oldest first; omit periods without any."""
    bins: dict[int, list[int]] = defaultdict(list)
    for row in rebalances:
        at_ms = row["started_at_ms"] // bin_ms * bin_ms
        bins[at_ms].append(row["stopped_total_ms"] or 0)
    return [
        {"at_ms": at_ms, "rebalance_count": len(stops), "stopped_total_ms": sum(stops)}
        for at_ms, stops in sorted(bins.items())
    ]
