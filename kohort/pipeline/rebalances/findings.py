"""Renews the findings of each group that has new events.

Findings are recomputed instead of updated, because a late event, a closed gap or another threshold
changes earlier findings, and a kill may come between any two writes. The findings of a group are
computed from its whole history, but most of them cover only its last `days`. Only files with rows
of these groups are rewritten, and only if a row differs.

One query computes all groups. Each of its tasks computes some groups, as many at a time as fit into
memory, and reads the members of a larger group in portions. The rows are shuffled by table, and
each table is written in one commit. The driver selects the groups, and commits the totals of each
group last.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from kohort.formats.text import counted
from kohort.insight.analysis.finder import Finder, Thresholds
from kohort.insight.analysis.rows import Group
from kohort.insight.tables.columns import Table
from kohort.insight.tables.findings import FINDINGS, GROUPS, PARTITIONS
from kohort.insight.tables.history import AVOIDED, EVENT_KEY, MEMBERS, REBALANCES
from kohort.pipeline.arrow import schema_of, spark_schema, values_of
from kohort.pipeline.errors import retry_on_conflict
from kohort.pipeline.executors import Batches, items, objects, results_of
from kohort.pipeline.faults import explained
from kohort.pipeline.findings_in_arrow import (
    COMPUTED_DDL,
    READ,
    SCHEMAS,
    as_arrow,
    histories,
    members_in,
    packed,
    tables_in,
    tables_of,
)
from kohort.pipeline.lake import Change, Lake, Tables
from kohort.pipeline.memory import batched, without_gc

__all__ = ["Findings", "Thresholds"]

ROWS_AT_ONCE: Final = 200_000
"""Number of events and members computed together: a few hundred megabytes."""


ROWS_AT_LEAST: Final = 5_000
"""Up to this many events and members are computed in the driver, because planning a query would
take longer."""

_MEMBERS: Final = "members_after"


_Portion: TypeAlias = tuple[int, list[tuple[Group, int]]]
"""Number of a portion, and the portion's groups, each with its number of rows."""


class _Events(NamedTuple):
    events: int
    last: int
    rows: int
    """Number of events and of their members, which is about the number of rows to read."""


@dataclass(frozen=True, slots=True)
class _Replacing:
    tables: Tables
    versions: Mapping[str, int]
    """The versions of the tables before anything was read."""
    groups: tuple[Group, ...] | None
    """The groups that are renewed, or None for all."""
    is_whole: bool
    """Whether all tables exist with the current columns."""


class Findings:
    """Renews all tables of `FINDINGS`. Raises ReportedError."""

    def __init__(
        self,
        lake: Lake,
        thresholds: Thresholds,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`report` is called with a progress message before the groups are computed."""
        self._lake = lake
        self._thresholds = thresholds
        self._report = report

    def renew(self, among: Collection[Group] | None = None, *, everything: bool = False) -> int:
        """Renew the findings of groups whose events have changed since their row in the table
        `groups` was written; return the number of groups.

        With `among`, consider only these groups, unless a conflict or new columns require all.
        """
        is_all = everything

        def attempt() -> int:
            nonlocal is_all, among
            wanted, chosen = is_all, among
            is_all, among = True, None
            return self._renew_changed(chosen, everything=wanted)

        # After a conflict all groups are renewed, because the other run may have read other events.
        return retry_on_conflict(attempt)

    def _renew_changed(self, among: Collection[Group] | None, *, everything: bool) -> int:
        # All changes begin before anything is read, so that a concurrent renewal causes a conflict.
        changes = {table.name: self._begin(table) for table in FINDINGS}
        is_whole = all(changes[table.name].fits(table) for table in FINDINGS)
        is_new = everything or not is_whole
        if is_new:
            among = None
        events = self._events(among)
        done = set() if is_new else self._finished(changes[GROUPS.name], among)
        changed = {
            group: group_events.rows
            for group, group_events in sorted(events.items())
            if (group, group_events.events, group_events.last) not in done
        }
        if not changed and not is_new:
            return 0
        is_all = is_new or (among is None and len(changed) == len(events))
        replacing = _Replacing(
            self._lake.tables,
            {name: change.version for name, change in changes.items()},
            None if is_all else tuple(changed),
            is_whole,
        )
        self._write(replacing, changed)
        return len(changed)

    def _begin(self, table: Table) -> Change:
        """Begin a change, creating a missing table first."""
        change = self._lake.begin(table.name)
        if change.is_new:
            self._lake.create(table.name, spark_schema(table))
            change = self._lake.begin(table.name)
        return change

    def _events(self, among: Collection[Group] | None) -> dict[Group, _Events]:
        """Count the events of each group; only keys and member counts are read from the tables."""
        with_members = schema_of(REBALANCES, [*EVENT_KEY, _MEMBERS])
        counts: dict[Group, _Events] = {}
        for name in (REBALANCES.name, AVOIDED.name):
            with explained(self._lake.label(name)):
                for part in self._lake.begin(name).parts(with_members, among):
                    for group, events in _counted(part):
                        known = counts.get(group, _Events(0, 0, 0))
                        counts[group] = _Events(
                            known.events + events.events,
                            max(known.last, events.last),
                            known.rows + events.rows,
                        )
        return counts

    def _finished(
        self, change: Change, among: Collection[Group] | None
    ) -> set[tuple[Group, int, int]]:
        """Return (group, number of events, last sequence) from each row of the table `groups`."""
        names = [*EVENT_KEY[:2], "event_count", "last_sequence"]
        with explained(self._lake.label(GROUPS.name)):
            rows = change.read(schema_of(GROUPS, names), among)
        columns = (values_of(rows[name]) for name in names)
        return {
            ((cluster_id, group), count, last)
            for cluster_id, group, count, last in zip(*columns, strict=True)
        }

    def _write(self, replacing: _Replacing, changed: Mapping[Group, int]) -> None:
        total = sum(changed.values())
        self._report(f"findings of {counted(len(changed), 'group')}")
        compute = partial(_compute, replacing.tables, self._thresholds, ROWS_AT_ONCE)
        if total <= ROWS_AT_LEAST:
            computed = sorted(tables_in(compute([(0, list(changed.items()))])), key=itemgetter(0))
            totals = list(_replace(replacing, computed))
        else:
            totals = self._in_tasks(replacing, changed, compute, total)
        _write_table(replacing, GROUPS.name, totals)

    def _in_tasks(
        self,
        replacing: _Replacing,
        changed: Mapping[Group, int],
        compute: Callable[[Iterable[_Portion]], Batches],
        total: int,
    ) -> list[pa.Table]:
        spark = self._lake.spark
        cores = spark.sparkContext.defaultParallelism
        share = max(ROWS_AT_LEAST, min(ROWS_AT_ONCE, total // (2 * cores) + 1))
        portions = [[(group, changed[group]) for group in part] for part in batched(changed, share)]
        computed = items(spark, enumerate(portions)).mapInArrow(
            lambda batches: compute(objects(batches)), COMPUTED_DDL
        )
        by_table = computed.repartition(min(len(FINDINGS), cores), "table")
        with explained(f"the findings of {self._lake.root}"):
            return results_of(
                by_table.sortWithinPartitions("table", "number"),
                lambda batches: _replace(replacing, tables_in(batches)),
            )


def _counted(part: pa.Table) -> Iterator[tuple[Group, _Events]]:
    grouped = part.group_by(list(EVENT_KEY[:2])).aggregate(
        [("sequence", "count"), ("sequence", "max"), (_MEMBERS, "sum")]
    )
    names = (*EVENT_KEY[:2], "sequence_count", "sequence_max", f"{_MEMBERS}_sum")
    for cluster_id, group, count, last, members in zip(
        *(values_of(grouped[name]) for name in names), strict=True
    ):
        yield (cluster_id, group), _Events(count, last, count + (members or 0))


def _compute(
    tables: Tables, thresholds: Thresholds, rows_at_once: int, portions: Iterable[_Portion]
) -> Batches:
    """Yield the findings of the groups in each portion, as batches with the columns of
    COMPUTED_DDL.
    """
    for number, portion in portions:
        if not number:
            # Tables without new rows are written too, so that old rows of the groups are deleted.
            yield from packed({name: schema.empty_table() for name, schema in SCHEMAS.items()}, -1)
        with without_gc():
            for computed in _tables(tables, thresholds, rows_at_once, portion):
                yield from packed(computed, number)


def _tables(
    tables: Tables, thresholds: Thresholds, rows_at_once: int, portion: list[tuple[Group, int]]
) -> Iterator[dict[str, pa.Table]]:
    """Yield the computed rows of each table: at once for a portion's groups, or in parts for a
    single group that exceeds `rows_at_once`.
    """
    if not portion:
        return
    groups = [group for group, _ in portion]
    if portion[0][1] > rows_at_once:
        yield from _in_parts(tables, thresholds, rows_at_once, groups[0])
        return
    read = {name: _read(tables, name, groups) for name in READ}
    yield tables_of(histories(read), thresholds)


def _in_parts(
    tables: Tables, thresholds: Thresholds, rows_at_once: int, group: Group
) -> Iterator[dict[str, pa.Table]]:
    """Like `_tables`, for a group whose members do not fit into memory and are read in portions."""
    read = {name: _read(tables, name, [group]) for name in READ if name != MEMBERS.name}
    (history,) = histories({**read, MEMBERS.name: READ[MEMBERS.name].empty_table()})
    finder = Finder(history, thresholds)
    events = ((row.sequence, row.members_after) for row in history.rebalances)
    parts = list(_parts(events, rows_at_once // 4))
    for number, (first, last) in enumerate(parts, 1):
        members = members_in(_read(tables, MEMBERS.name, [group], (first, last)), first, last)
        partition_rows = finder.add(members, is_last=number == len(parts))
        if partition_rows:
            yield {PARTITIONS.name: as_arrow(PARTITIONS, [(history, partition_rows)])}
    other_rows = finder.finish()
    yield {
        table.name: as_arrow(table, [(history, other_rows[table.name])])
        for table in FINDINGS
        if other_rows.get(table.name)
    }


def _read(
    tables: Tables,
    name: str,
    groups: Collection[Group],
    sequences: tuple[int, int] | None = None,
) -> pa.Table:
    with explained(tables.label(name)):
        return tables.begin(name).read(READ[name], groups, sequences)


def _replace(replacing: _Replacing, computed: Iterable[tuple[str, pa.Table]]) -> Iterator[pa.Table]:
    """Write rows, which are sorted by table, to their tables, but yield the rows of GROUPS: the
    driver writes this table last.
    """
    for name, of_table in groupby(computed, itemgetter(0)):
        parts = (rows for _, rows in of_table)
        if name == GROUPS.name:
            yield from parts
        else:
            _write_table(replacing, name, parts)


def _write_table(replacing: _Replacing, name: str, parts: Iterable[pa.Table]) -> None:
    table = next(table for table in FINDINGS if table.name == name)
    with explained(replacing.tables.label(name)):
        replacing.tables.begin(name, replacing.versions[name]).replace(
            parts, SCHEMAS[name], replacing.groups, None if replacing.is_whole else table
        )


def _parts(events: Iterable[tuple[int, int | None]], most: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last sequence number of each portion of a group's events.

    `events` has the sequence number and the member count of each event; a portion ends when the
    events and members in it exceed `most`. Member counts omit members that left, so `most` must
    be well below the number of rows that fit into memory.
    """
    begin, last, count = None, 0, 0
    for sequence, members in events:
        if begin is None or count > most:
            if begin is not None:
                yield begin, last
            begin, count = sequence, 0
        last = sequence
        count += 1 + (members or 0)
    if begin is not None:
        yield begin, last
