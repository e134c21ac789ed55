"""Makes the page of one group from its history, without Spark."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kohort.groups.history.sentence import record_sentence
from kohort.insight.advisor.advice import Advice
from kohort.insight.advisor.rows import advice_row
from kohort.insight.analysis.finder import Thresholds, compute_findings
from kohort.insight.analysis.rows import as_row
from kohort.insight.report.contents import (
    ACTS_SHOWN,
    MARKS_MAX,
    OWNED_PARTITIONS_MAX,
    OWNED_TIMES_MAX,
    GroupPage,
    Listed,
    Ownership,
    Row,
    bin_of,
    costliest,
    sentences_max,
)
from kohort.insight.report.events import History, by_time, causes
from kohort.insight.report.late_returns import late_returns
from kohort.insight.report.text import clock, moment

EVERYTHING: Final = Thresholds(days=100 * 366)
_AROUND: Final = 0.05
"""Margin before and after an act (such as a restart) in its chart, as a share of its duration."""


def group_page(history: History, advice: Sequence[Row] = (), *, cluster_id: str = "") -> GroupPage:
    """Return the page of a group with at least one rebalance.

    Args:
        advice: rows of the table `advice`, for all settings that were tried.

    Raises:
        ValueError: a value of a record has another type than its field.
    """
    try:
        findings = compute_findings(history.rows, EVERYTHING)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not a history: {error!r}") from error
    tables = {name: [as_row(row) for row in rows] for name, rows in findings.items()}
    rebalances = history.rebalances()
    costliest_rows = costliest(rebalances, sentences_max(1))
    page = page_of(cluster_id, history.group, tables, rebalances)
    page.sentences = Listed(
        [with_sentence(row, row["event"]) for row in costliest_rows], len(rebalances)
    )
    page.ownership = _ownership(tables["partitions"], page.figures, tables["acts"])
    page.advice = advice
    return page


def page_of(
    cluster_id: str,
    group: str,
    tables: Mapping[str, Sequence[Row]],
    rebalances: Sequence[Row],
) -> GroupPage:
    """Return the page of a group; the caller sets its `sentences`, `ownership` and `advice`.

    Args:
        tables: the group's rows in each table of findings; `partitions` is not read.
        rebalances: as from `History.rebalances`.
    """
    (totals,) = tables["groups"]
    bin_ms = bin_of(totals["last_at_ms"] - totals["first_at_ms"])
    kinds = {number: act["kind"] for act in tables["acts"] for number in act["sequences"]}
    rebalances = [row | {"act": kinds.get(row["sequence"])} for row in rebalances]
    storms = _ranked(tables["storms"], "rebalance_count", "first_sequence")
    partition = ("topic", "partition", "cause")
    return GroupPage(
        cluster_id=cluster_id,
        group=group,
        figures=totals,
        causes=_ranked(
            _ranked(causes(tables["acts"]), "rebalance_count", "kind"), "stopped_total_ms"
        ),
        acts=Listed.first(tables["acts"][::-1], ACTS_SHOWN),
        late=late_returns(tables["acts"]),
        slow_members=Listed.first(
            _ranked(tables["slow_members"], "waited_for_total_ms", "process")
        ),
        heartbeat_gaps=Listed.first(
            _ranked(tables["heartbeat_gaps"], "told_longest_ms", "process")
        ),
        unavailability=Listed.first(_ranked(tables["unavailability"], "total_ms", *partition)),
        flapping=Listed.first(_ranked(tables["flapping"], "moves", *partition[:2])),
        needless=Listed.first(tables["needless"]),
        busiest=storms[0] if storms else None,
        bin_ms=bin_ms,
        by_time=by_time(rebalances, bin_ms),
        marks=Listed(costliest(rebalances, MARKS_MAX), len(rebalances)),
        assignor=_last_assignor(rebalances),
        is_consumer_group=_is_consumer_group(rebalances),
    )


def _last_assignor(rebalances: Sequence[Row]) -> str | None:
    named = [row for row in rebalances if row["protocol"]]
    return max(named, key=lambda row: int(row["sequence"]))["protocol"] if named else None


def _is_consumer_group(rebalances: Sequence[Row]) -> bool:
    last = max(rebalances, key=lambda row: int(row["sequence"]), default=None)
    return last is not None and last["group_type"] == "consumer"


def _ranked(rows: Iterable[Row], most: str, *names: str) -> list[Row]:
    """Sort the rows by the column `most`, largest first, and rows with equal values by the columns
    `names`.
    """
    return sorted(
        rows,
        key=lambda row: (
            row[most] is None,
            -(row[most] or 0),
            *((row[name] is not None, row[name] or 0) for name in names),
        ),
    )


def with_sentence(row: Row, event: Mapping[str, Any]) -> Row:
    """Return a rebalance's row for the page, with the sentence that the broker would log."""
    names = ("sequence", "started_at_ms", "stopped_total_ms")
    return {**{name: row[name] for name in names}, "sentence": record_sentence(event, clock)}


def _ownership(intervals: Sequence[Row], totals: Row, acts: Sequence[Row]) -> Ownership:
    rows = [
        {**interval, "partition": partition}
        for interval in intervals
        for partition in interval["partitions"]
    ]
    from_ms, until_ms, about = drawn_part(totals, acts, len(rows))
    return drawn(rows, from_ms, until_ms, about)


def drawn_part(totals: Row, acts: Sequence[Row], times: int) -> tuple[int, int, str]:
    """Return the time range of the ownership chart, and a sentence that describes it. If the
    history has more than OWNED_TIMES_MAX ownership periods, only the act (such as a rolling
    restart) with the longest total pause is drawn: an hour would be invisible in a week.
    """
    from_ms, until_ms = totals["first_at_ms"], totals["last_at_ms"]
    ended = [row for row in acts if row["rebalance_count"] and row["ended_at_ms"] is not None]
    if times <= OWNED_TIMES_MAX or not ended:
        return from_ms, until_ms, "From the first rebalance to the last."
    worst = max(ended, key=lambda row: int(row["stopped_total_ms"] or 0))
    from_ms, until_ms = worst["started_at_ms"], worst["ended_at_ms"]
    around_ms = int((until_ms - from_ms) * _AROUND) + 1_000
    return (
        from_ms - around_ms,
        until_ms + around_ms,
        f"The costliest act, from {moment(from_ms)}.",
    )


def drawn(rows: Sequence[Row], from_ms: int, until_ms: int, about: str) -> Ownership:
    """Return ownership periods between two times, of at most OWNED_PARTITIONS_MAX partitions."""
    within = [
        row
        for row in rows
        if row["from_at_ms"] <= until_ms
        and (row["until_at_ms"] is None or row["until_at_ms"] >= from_ms)
    ]
    lines = sorted({(row["topic"], row["partition"]) for row in within})
    chosen = set(lines[:OWNED_PARTITIONS_MAX])
    times = [row for row in within if (row["topic"], row["partition"]) in chosen]
    times.sort(key=lambda row: (row["topic"], row["partition"], row["from_at_ms"]))
    cut = " The shortest periods are omitted." if len(times) > OWNED_TIMES_MAX else ""
    times = _fair(times)
    return Ownership(times, from_ms, until_ms, len(lines), about + cut)


def _fair(times: list[Row]) -> list[Row]:
    """Return the OWNED_TIMES_MAX longest periods, because short ones would be invisible."""
    if len(times) <= OWNED_TIMES_MAX:
        return times

    def length_ms(row: Row) -> float:
        until = row["until_at_ms"]
        return float("inf") if until is None else until - row["from_at_ms"]

    kept = {id(row) for row in sorted(times, key=length_ms, reverse=True)[:OWNED_TIMES_MAX]}
    return [row for row in times if id(row) in kept]


def advice_rows(advice: Advice | None) -> list[Row]:
    """Return rows of the recorded setting and of the settings worth considering; empty without
    advice.
    """
    if advice is None:
        return []
    chosen = (advice.recorded, *advice.front, advice.quicker, advice.both)
    tried = [prediction for prediction in chosen if prediction is not None]
    return [advice_row(advice, prediction, place) for place, prediction in enumerate(tried)]
