"""Renews the findings of each group that has new events.

Findings are recomputed instead of updated, because a late event, a closed gap or another threshold
changes earlier findings, and a kill may fall between any two writes. Each group is computed from
its whole history, of which the large part, members' stops, is limited to the last `days`. Only
files with rows of these groups are rewritten, and only if a row differs.

Groups are computed in the driver, as many at a time as fit into memory. The members of a larger
group are read in portions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from kohort.insight.analysis.finder import Finder, Thresholds
from kohort.insight.analysis.rows import Group
from kohort.pipeline.arrow import conformed, schema_of, values_of
from kohort.pipeline.errors import ConflictError, retry_on_conflict
from kohort.pipeline.faults import explained
from kohort.pipeline.findings_in_arrow import (
    READ,
    SCHEMAS,
    as_arrow,
    histories,
    members_in,
    tables_of,
)
from kohort.pipeline.lake import Change, Lake
from kohort.pipeline.memory import batched, without_gc
from kohort.pipeline.schemas import (
    AVOIDED,
    EVENT_KEY,
    FINDINGS,
    GROUPS,
    MEMBERS,
    PARTITIONS,
    REBALANCES,
    Table,
)

__all__ = ["Findings", "Thresholds"]

ROWS_AT_ONCE: Final = 200_000
"""Events and members computed together: a few hundred megabytes."""


_MEMBERS: Final = "members_after"


@dataclass(frozen=True, slots=True)
class _Work:
    changed: dict[Group, int]
    """Changed groups with the number of rows in their history, sorted by name."""
    is_all: bool
    """Whether all groups are renewed, so no existing rows are retained."""
    is_whole: bool
    """Whether all tables exist with the current columns."""


class _Events(NamedTuple):
    events: int
    last: int
    rows: int
    """Number of events and of their members: roughly the rows to read."""


class Findings:
    """Renews the tables FINDINGS. Raises ReportedError."""

    def __init__(
        self,
        lake: Lake,
        thresholds: Thresholds,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`report` is called with a line on each table before it is written."""
        self._lake = lake
        self._thresholds = thresholds
        self._report = report

    def renew(self, *, everything: bool = False) -> int:
        """Renew the findings of groups with other events than `groups` has; return how many."""
        is_all = everything

        def attempt() -> int:
            nonlocal is_all
            wanted, is_all = is_all, True
            return self._renew_changed(everything=wanted)

        # After a conflict all groups are renewed, because the other run may have read other events.
        with without_gc():
            return retry_on_conflict(attempt)

    def _renew_changed(self, *, everything: bool) -> int:
        # All changes begin before anything is read, so that a concurrent renewal causes a conflict.
        changes = {table.name: self._begin(table) for table in FINDINGS}
        is_whole = all(changes[table.name].fits(table) for table in FINDINGS)
        events = self._events()
        done = set() if everything or not is_whole else self._finished(changes[GROUPS.name])
        changed = {
            group: group_events.rows
            for group, group_events in sorted(events.items())
            if (group, group_events.events, group_events.last) not in done
        }
        is_all = everything or not is_whole or len(changed) == len(events)
        if changed or everything or not is_whole:
            self._write(changes, _Work(changed, is_all, is_whole))
        return len(changed)

    def _begin(self, table: Table) -> Change:
        """Begin a change, creating a missing table first."""
        change = self._lake.begin(table.name)
        if change.is_new:
            self._lake.create(table.name, table.schema)
            change = self._lake.begin(table.name)
        return change

    def _events(self) -> dict[Group, _Events]:
        with_members = schema_of(REBALANCES, [*EVENT_KEY, _MEMBERS])
        parts = [
            conformed(self._read(name, names), with_members)
            for name, names in (
                (REBALANCES.name, with_members.names),
                (AVOIDED.name, list(EVENT_KEY)),
            )
        ]
        counted = (
            pa.concat_tables(parts)
            .group_by(list(EVENT_KEY[:2]))
            .aggregate([("sequence", "count"), ("sequence", "max"), (_MEMBERS, "sum")])
        )
        names = (*EVENT_KEY[:2], "sequence_count", "sequence_max", f"{_MEMBERS}_sum")
        rows = zip(*(values_of(counted[name]) for name in names), strict=True)
        return {
            (cluster_id, group): _Events(count, last, count + (members or 0))
            for cluster_id, group, count, last, members in rows
        }

    def _finished(self, change: Change) -> set[tuple[Group, int, int]]:
        """Return the number of events and the last sequence of each group at its last renewal."""
        names = [*EVENT_KEY[:2], "event_count", "last_sequence"]
        with explained(self._lake.label(GROUPS.name)):
            rows = change.read(schema_of(GROUPS, names))
        columns = (values_of(rows[name]) for name in names)
        return {
            ((cluster_id, group), count, last)
            for cluster_id, group, count, last in zip(*columns, strict=True)
        }

    def _write(self, changes: dict[str, Change], work: _Work) -> None:
        groups = None if work.is_all else list(work.changed)
        writers = {
            table.name: changes[table.name].replacing(groups, None if work.is_whole else table)
            for table in FINDINGS
        }
        for tables in self._computed(work):
            for name, rows in tables.items():
                with explained(self._lake.label(name)):
                    writers[name].add(rows)
        for number, table in enumerate(FINDINGS, 1):
            self._report(f"{table.name}, table {number} of {len(FINDINGS)}")
            with self._reworded_conflicts(), explained(self._lake.label(table.name)):
                writers[table.name].commit(SCHEMAS[table.name])

    def _computed(self, work: _Work) -> Iterator[dict[str, pa.Table]]:
        """Yield the rows of tables, for several groups or for a part of one group."""
        done = 0
        for groups in batched(work.changed, ROWS_AT_ONCE):
            self._report(f"group {done + 1:,} of {len(work.changed):,}")
            if work.changed[groups[0]] > ROWS_AT_ONCE:
                yield from self._computed_in_parts(groups[0])
            else:
                names = {name: schema.names for name, schema in READ.items()}
                tables = {name: self._read(name, names[name], groups) for name in names}
                yield tables_of(histories(tables), self._thresholds)
            done += len(groups)

    def _computed_in_parts(self, group: Group) -> Iterator[dict[str, pa.Table]]:
        """Yield the rows of a group whose members do not fit into memory."""
        names = {name: schema.names for name, schema in READ.items() if name != MEMBERS.name}
        tables = {name: self._read(name, names[name], [group]) for name in names}
        (history,) = histories({**tables, MEMBERS.name: READ[MEMBERS.name].empty_table()})
        finder = Finder(history, self._thresholds)
        parts = list(_parts((row.sequence, row.members_after) for row in history.rebalances))
        for number, (first, last) in enumerate(parts, 1):
            self._report(f"{group[1]}, part {number:,} of {len(parts):,}")
            wanted = READ[MEMBERS.name].names
            rows = self._read(MEMBERS.name, wanted, [group], (first, last))
            members = members_in(rows, first, last)
            partition_rows = finder.add(members, is_last=number == len(parts))
            if partition_rows:
                yield {PARTITIONS.name: as_arrow(PARTITIONS, history, partition_rows)}
        other_rows = finder.finish()
        yield {
            table.name: as_arrow(table, history, other_rows[table.name])
            for table in FINDINGS
            if other_rows.get(table.name)
        }

    def _read(
        self,
        name: str,
        columns: Sequence[str],
        groups: Sequence[Group] | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> pa.Table:
        schema = pa.schema([READ[name].field(column) for column in columns])
        with explained(self._lake.label(name)):
            return self._lake.begin(name).read(schema, groups, sequences)

    def _reworded_conflicts(self) -> AbstractContextManager[None]:
        return _Reworded(f"the findings of {self._lake.root}: another run renewed them meanwhile")


class _Reworded(AbstractContextManager[None]):
    """Replaces the text of conflict errors with one for the caller."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConflictError):
            raise ConflictError(self._text) from error


def _parts(events: Iterable[tuple[int, int | None]]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last sequence number of each portion of a group's events.

    `events` has the number and the final member count of each. Members that left are not counted,
    so portions are small.
    """
    begin, last, count = None, 0, 0
    for sequence, members in events:
        if begin is None or count > ROWS_AT_ONCE // 4:
            if begin is not None:
                yield begin, last
            begin, count = sequence, 0
        last = sequence
        count += 1 + (members or 0)
    if begin is not None:
        yield begin, last
