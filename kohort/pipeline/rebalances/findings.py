"""What only several events together tell, made again for each group that has new events.

Why again, and not carried on from batch to batch: a late event, a gap that closes, or another
threshold changes what was found before, and a kill may fall between any two writes. What is made
from the tables of the history alone is right whenever it is made. A batch costs as much as the
history of its groups, of which the large part, stops of members, is looked at for `days` only; of
the tables, the files are written again that have rows of these groups, if any of them is another.

Groups are worked out in the driver, so many at a time as fit into its memory; of a group that is
larger than that, the members of so many rebalances at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from kohort.insight.analysis.finder import Finder, Thresholds
from kohort.pipeline.arrow import conformed, schema_of, values_of
from kohort.pipeline.errors import ConflictError
from kohort.pipeline.faults import explained
from kohort.pipeline.findings_in_arrow import (
    READ,
    SCHEMAS,
    as_arrow,
    histories,
    members_in,
    tables_of,
)
from kohort.pipeline.memory import batched, without_gc
from kohort.pipeline.rebalances.conflicts import again_on_conflict
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

if TYPE_CHECKING:
    from kohort.insight.analysis.rows import Group
    from kohort.pipeline.lake import Change, Lake

__all__ = ["Findings", "Thresholds"]

ROWS_AT_ONCE: Final = 200_000
"""Events, and members in them, that are worked out together: a few hundred megabytes."""


_MEMBERS: Final = "members_after"


@dataclass(frozen=True, slots=True)
class _Work:
    """What one renewal is about."""

    changed: dict[Group, int]
    """Groups, and how many rows the history of each has, in the order of their names."""
    is_all: bool
    """Whether there are no other groups, or none whose rows can stay."""
    is_whole: bool
    """Whether all tables are there as they should be."""


class _Events(NamedTuple):
    """What there is of a group."""

    events: int
    last: int
    """The number of the last one."""
    rows: int
    """Number of events, plus the members that they ended with: roughly the rows to read."""


class Findings:
    """Renews the tables FINDINGS. Raises ReportedError."""

    def __init__(
        self,
        lake: Lake,
        thresholds: Thresholds,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`report` gets a line on each table that is about to be written."""
        self._lake = lake
        self._thresholds = thresholds
        self._report = report

    def renew(self, *, everything: bool = False) -> int:
        """Make findings again for groups whose row in `groups` does not fit their events. Returns
        for how many.
        """
        is_all = everything

        def attempt() -> int:
            nonlocal is_all
            wanted, is_all = is_all, True
            return self._renew_changed(everything=wanted)

        # After a conflict all is made again: it is not known which events the other run had seen.
        with without_gc():
            return again_on_conflict(attempt)

    def _renew_changed(self, *, everything: bool) -> int:
        # All begin before anything is read: who renews them meanwhile is noticed.
        changes = {table.name: self._begin(table) for table in FINDINGS}
        is_whole = all(changes[table.name].fits(table) for table in FINDINGS)
        events = self._events()
        done = set() if everything or not is_whole else self._done(changes[GROUPS.name])
        changed = {
            group: one.rows
            for group, one in sorted(events.items())
            if (group, one.events, one.last) not in done
        }
        is_all = everything or not is_whole or len(changed) == len(events)
        if changed or everything or not is_whole:
            self._write(changes, _Work(changed, is_all, is_whole))
        return len(changed)

    def _begin(self, table: Table) -> Change:
        """A table is there before its files are: what another run finds is never files alone."""
        change = self._lake.begin(table.name)
        if change.is_new:
            self._lake.create(table.name, table.schema)
            change = self._lake.begin(table.name)
        return change

    def _events(self) -> dict[Group, _Events]:
        """The events of each group."""
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

    def _done(self, change: Change) -> set[tuple[Group, int, int]]:
        """The same, as it was when findings were made last."""
        names = [*EVENT_KEY[:2], "event_count", "last_sequence"]
        with explained(self._lake.called(GROUPS.name)):
            rows = change.read(schema_of(GROUPS, names))
        columns = (values_of(rows[name]) for name in names)
        return {
            ((one, group), count, last) for one, group, count, last in zip(*columns, strict=True)
        }

    def _write(self, changes: dict[str, Change], work: _Work) -> None:
        groups = None if work.is_all else list(work.changed)
        writers = {
            table.name: changes[table.name].replacing(groups, None if work.is_whole else table)
            for table in FINDINGS
        }
        for found in self._found(work):
            for name, rows in found.items():
                with explained(self._lake.called(name)):
                    writers[name].add(rows)
        for number, table in enumerate(FINDINGS, 1):
            self._report(f"{table.name}, table {number} of {len(FINDINGS)}")
            with self._reworded_conflicts(), explained(self._lake.called(table.name)):
                writers[table.name].commit(SCHEMAS[table.name])

    def _found(self, work: _Work) -> Iterator[dict[str, pa.Table]]:
        """The rows of tables, of some groups at a time, or some of those of a group."""
        done = 0
        for groups in batched(work.changed, ROWS_AT_ONCE):
            self._report(f"group {done + 1:,} of {len(work.changed):,}")
            if work.changed[groups[0]] > ROWS_AT_ONCE:
                yield from self._found_in_parts(groups[0])
            else:
                names = {name: schema.names for name, schema in READ.items()}
                tables = {name: self._read(name, names[name], groups) for name in names}
                yield tables_of(histories(tables), self._thresholds)
            done += len(groups)

    def _found_in_parts(self, group: Group) -> Iterator[dict[str, pa.Table]]:
        """The rows of a group, of which the members are too many to be held at a time."""
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
            found = finder.add(members, is_last=number == len(parts))
            if found:
                yield {PARTITIONS.name: as_arrow(PARTITIONS, history, found)}
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
        with explained(self._lake.called(name)):
            return self._lake.begin(name).read(schema, groups, sequences)

    def _reworded_conflicts(self) -> AbstractContextManager[None]:
        return _Reworded(f"the findings of {self._lake.root}: another run renewed them meanwhile")


class _Reworded(AbstractContextManager[None]):
    """Rewords conflicts, with what they mean to the caller."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConflictError):
            raise ConflictError(self._text) from error


def _parts(events: Iterable[tuple[int, int | None]]) -> Iterator[tuple[int, int]]:
    """The first and the last number of each part of a group's events, in their order; of each its
    number, and how many members it ended with. Those that it lost come on top, so parts are small.
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
