"""Reads the data of the report's page from the tables of a lake.

Shows a bounded number of groups, and a bounded number of rows of each group. Groups are read one at
a time. Tables are read with Arrow: planning and compiling a Spark query for a few rows of each
would take most of the report's time.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kohort.insight.errors import ReportedError
from kohort.insight.report.contents import (
    GROUPS_LISTED,
    GROUPS_SHOWN,
    OWNED_TIMES_MAX,
    Contents,
    GroupPage,
    Listed,
    Ownership,
    Row,
    costliest,
    sentences_max,
)
from kohort.insight.report.from_history import drawn, drawn_part, page_of, with_sentence
from kohort.insight.tables.advice import ADVICE
from kohort.insight.tables.columns import Table
from kohort.insight.tables.findings import ACTS, FINDINGS, GROUPS, PARTITIONS
from kohort.insight.tables.history import EVENT_KEY, REBALANCES
from kohort.pipeline.arrow import schema_of, values_of
from kohort.pipeline.faults import explained
from kohort.pipeline.lake import Change, Lake

Key = tuple[str, str]

ADVICE_MAX: Final = 1_000
"""Maximum number of simulated settings shown for a group; the largest grid has a few hundred."""

EVENTS_AT_ONCE: Final = 20_000
"""Maximum range of the sequence numbers of history events that are read together."""

_OF_REBALANCES: Final = (
    *("sequence", "started_at", "trigger_certainty"),
    *("stopped_total_ms", "protocol", "group_type"),
)
_OF_PARTITIONS: Final = (
    *("topic", "partitions", "sequence", "state", "owner", "from_at", "until_at"),
    "duration_ms",
)


def collect(lake: Lake, groups: Sequence[str], report: Callable[[str], None]) -> Contents:
    """Read the groups with the most stopped time, or the named ones.

    Args:
        report: called with the current activity.

    Raises:
        ReportedError: the lake has no rebalance of these groups.
    """
    report("finding the groups with the most stopped time")
    tables = _Tables(lake)
    totals = [
        row
        for row in tables.rows(GROUPS, GROUPS.names)
        if row["rebalance_count"] and (not groups or row["group"] in groups)
    ]
    if not totals:
        raise ReportedError("the lake has no rebalance of these groups")
    totals.sort(
        key=lambda row: (
            -row["stopped_total_ms"],
            -row["rebalance_count"],
            *(row["cluster_id"], row["group"]),
        )
    )
    shown = totals[:GROUPS_SHOWN]
    pages = []
    for number, row in enumerate(shown, 1):
        report(f"group {row['group']}, {number} of {len(shown)}")
        pages.append(_page(tables, (row["cluster_id"], row["group"]), sentences_max(len(shown))))
    listed = totals[GROUPS_SHOWN:GROUPS_LISTED]
    return Contents(pages, Listed(listed, len(totals) - len(shown)))


class _Tables:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._changes: dict[str, Change] = {}

    def read(
        self,
        table: Table,
        names: Sequence[str],
        key: Key | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Return the rows of a group, or of all groups; none if the table does not exist."""
        schema = schema_of(table, list(dict.fromkeys([*EVENT_KEY[:2], *names])))
        with explained(self._lake.label(table.name)):
            if table.name not in self._changes:
                self._changes[table.name] = self._lake.begin(table.name)
            change = self._changes[table.name]
            if change.is_new:
                return schema.empty_table()
            return change.read(schema, None if key is None else [key], sequences)

    def rows(self, table: Table, names: Sequence[str], key: Key | None = None) -> list[Row]:
        return as_rows(self.read(table, names, key))


def as_rows(table: pa.Table) -> list[Row]:
    """Return rows for the page: times as milliseconds, in columns that end in `_at_ms`."""
    names = [
        f"{field.name}_ms" if pa.types.is_timestamp(field.type) else field.name
        for field in table.schema
    ]
    columns = [values_of(column) for column in table.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _page(tables: _Tables, key: Key, sentence_count: int) -> GroupPage:
    findings = {
        table.name: tables.rows(table, table.names, key)
        for table in FINDINGS
        if table is not PARTITIONS
    }
    findings[ACTS.name].sort(key=lambda row: int(row["ordinal"]))
    rebalances = tables.rows(REBALANCES, _OF_REBALANCES, key)
    page = page_of(*key, findings, rebalances)
    page.sentences = Listed(
        [
            with_sentence(row, event)
            for row, event in _events(tables, key, costliest(rebalances, sentence_count))
        ],
        len(rebalances),
    )
    page.ownership = _ownership(tables, key, page, findings[ACTS.name])
    advice = sorted(tables.rows(ADVICE, ADVICE.names, key), key=lambda row: int(row["ordinal"]))
    page.advice = advice[:ADVICE_MAX]
    return page


def _events(tables: _Tables, key: Key, chosen: Sequence[Row]) -> Iterator[tuple[Row, Any]]:
    waiting = list(chosen)
    while waiting:
        first = waiting[0]["sequence"]
        part = [row for row in waiting if row["sequence"] < first + EVENTS_AT_ONCE]
        waiting = waiting[len(part) :]
        names, sequences = ("sequence", "event"), (first, part[-1]["sequence"])
        wanted = {row["sequence"]: row for row in part}
        events = tables.read(REBALANCES, names, key, sequences)
        texts = events.filter(pc.is_in(events["sequence"], value_set=pa.array(list(wanted))))
        by_sequence = {row["sequence"]: row["event"] for row in texts.to_pylist()}
        for sequence, row in wanted.items():
            if by_sequence.get(sequence):
                yield row, json.loads(by_sequence[sequence])


def _ownership(tables: _Tables, key: Key, page: GroupPage, acts: Sequence[Row]) -> Ownership:
    owned = tables.read(PARTITIONS, _OF_PARTITIONS, key)
    times = pc.sum(pc.list_value_length(owned["partitions"])).as_py() or 0
    from_ms, until_ms, about = drawn_part(page.figures, acts, times)
    if times > OWNED_TIMES_MAX:
        owned = owned.filter(_between(owned, from_ms, until_ms))
    rows = [
        {**interval, "partition": partition}
        for interval in as_rows(owned)
        for partition in interval.pop("partitions")
    ]
    return drawn(rows, from_ms, until_ms, about)


def _between(owned: pa.Table, from_ms: int, until_ms: int) -> pa.ChunkedArray:
    """Return a mask of the rows whose period overlaps the period from `from_ms` to `until_ms`."""

    def moment(ms: int) -> pa.Scalar:
        return pa.scalar(ms * 1000, pa.int64()).cast(owned["from_at"].type)

    began = pc.less_equal(owned["from_at"], moment(until_ms))
    continues = pc.fill_null(pc.greater_equal(owned["until_at"], moment(from_ms)), True)
    return pc.and_(began, continues)
