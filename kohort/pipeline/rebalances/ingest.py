"""Records of the history into tables, each event once, however often its record comes.

An event is known by cluster, group and sequence number. Every table takes rows by their key and
keeps the first, so a batch that was half written before a kill is simply written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from kohort.insight import event_rows
from kohort.insight.counting import counted
from kohort.pipeline.arrow import from_rows, schema_of, values_of
from kohort.pipeline.events import Read, Record, Refused, read, typed
from kohort.pipeline.faults import explained
from kohort.pipeline.memory import without_gc
from kohort.pipeline.rebalances.conflicts import again_on_conflict
from kohort.pipeline.schemas import (
    AVOIDED,
    EVENT_KEY,
    HISTORY,
    MEMBERS,
    QUARANTINE,
    REBALANCES,
    RUNNING,
    Table,
)

if TYPE_CHECKING:
    from kohort.pipeline.lake import Change, Lake

BATCH_RECORDS: Final = 20_000
BATCH_BYTES: Final = 48 << 20
"""What is taken at a time: with all that is made of it, a few hundred megabytes."""

_TABLES: Final = (MEMBERS, REBALANCES, AVOIDED)
"""Tables that complete events go into. Members first: a reader who sees a rebalance finds them."""

_Key: TypeAlias = tuple[str, str, int]
"""Cluster, group and sequence."""


@dataclass(slots=True)
class Tally:
    """What came in, repetitions included."""

    rebalances: int = 0
    avoided: int = 0
    running: int = 0
    quarantined: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Why, of those that are in quarantine."""

    def add(self, other: Tally) -> None:
        self.rebalances += other.rebalances
        self.avoided += other.avoided
        self.running += other.running
        self.quarantined += other.quarantined
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    def shown(self) -> str:
        text = f"{counted(self.rebalances, 'rebalance')}, {self.avoided:,} avoided"
        if self.running:
            text += f", {self.running:,} of them told of while they ran"
        if self.quarantined:
            reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(self.reasons.items()))
            text += f"; {self.quarantined:,} in quarantine ({reasons})"
        return text


class Ingest:
    """Writes batches of records. Raises ReportedError."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        ids = again_on_conflict(
            lambda: {table.name: lake.create(table.name, table.schema) for table in HISTORY}
        )
        self.table_id: Final = ids[REBALANCES.name]
        """Id of the table of rebalances: its checkpoints belong to it."""

    def take(self, records: Iterable[Record]) -> Tally:
        """One batch, in pieces that fit into memory."""
        tally = Tally()
        with without_gc():
            for piece in pieces(records):
                said = [read(record) for record in piece]
                tally.add(again_on_conflict(lambda said=said: self._take(said)))  # type: ignore[misc]
        return tally

    def _take(self, said: Sequence[Read | Refused]) -> Tally:
        # If several events have one number, the first counts.
        events = sorted(
            (one for one in said if isinstance(one, Read)), key=lambda one: one.record.offset
        )
        refused = [one for one in said if isinstance(one, Refused)]
        running = [one for one in events if event_rows.is_running(one.event)]
        complete = [one for one in events if not event_rows.is_running(one.event)]
        batch = _Batch(self._lake, complete)
        refused += batch.refused
        if refused:
            self._add_missing(QUARANTINE, [_quarantined(one) for one in refused])
        if running:
            told = [_sourced(event_rows.running(one.event), one) for one in running]
            self._add_missing(RUNNING, told)
        batch.write()
        return _tally(complete, running, refused)

    def _add_missing(self, table: Table, found: Sequence[dict[str, Any]]) -> None:
        """The rows whose key the table does not have."""
        with explained(self._lake.called(table.name)):
            change = self._lake.begin(table.name)
            groups = {(row["cluster_id"], row["group"]) for row in found if "group" in row}
            known = change.read(schema_of(table, table.key), groups or None)
            new = {tuple(map(row.get, table.key)): row for row in reversed(found)}
            for key in _keys(known):
                new.pop(key, None)
            if new:
                change.append(from_rows(table, reversed(new.values())), table.key)


class _Batch:
    """Complete events, and what the tables have of them already."""

    def __init__(self, lake: Lake, events: Sequence[Read]) -> None:
        self._lake = lake
        self.refused: list[Refused] = []
        """Events whose number another one has."""
        self._events: dict[_Key, Read] = {}
        self._known: dict[str, set[tuple[Any, ...]]] = {}
        self._changes: dict[str, Change] = {}
        if events:
            self._look(events)
            self._settle(events)

    def write(self) -> None:
        """What is missing in each table, in the order of _TABLES."""
        events = self._events.values()
        is_rebalance = [one for one in events if one.event["kind"] == event_rows.REBALANCE]
        is_avoided = [one for one in events if one.event["kind"] == event_rows.AVOIDED]
        self._append(
            MEMBERS,
            (
                row | {"cluster_id": one.record.cluster_id}
                for one in is_rebalance
                for row in event_rows.members(one.event)
            ),
        )
        self._append(
            REBALANCES, (_sourced(event_rows.rebalance(one.event), one) for one in is_rebalance)
        )
        self._append(AVOIDED, (_sourced(event_rows.avoided(one.event), one) for one in is_avoided))

    def _look(self, events: Sequence[Read]) -> None:
        groups = {one.key[:2] for one in events}
        numbers = [one.key[2] for one in events]
        for table in _TABLES:
            with explained(self._lake.called(table.name)):
                change = self._lake.begin(table.name)
                self._changes[table.name] = change
                known = change.read(
                    schema_of(table, table.key), groups, (min(numbers), max(numbers))
                )
                self._known[table.name] = _keys(known)

    def _settle(self, events: Sequence[Read]) -> None:
        """Which events go into the tables, and which contradict one that is there."""
        there = self._known[REBALANCES.name] | self._known[AVOIDED.name]
        repeated = {one.key for one in events} & there
        said = self._said(repeated) if repeated else {}
        for one in events:
            first = said.get(one.key)
            if first is None and one.key in self._events:
                first = self._events[one.key].event
            if first is None:
                self._events[one.key] = one
            elif first != one.event:
                _, group, sequence = one.key
                detail = f"another event of the group {group} has the sequence number {sequence}"
                self.refused.append(Refused(one.record, "sequence_taken", detail))

    def _said(self, keys: set[_Key]) -> dict[_Key, dict[str, Any]]:
        """What the tables have of these events."""
        found = {}
        groups = {key[:2] for key in keys}
        numbers = [key[2] for key in keys]
        for table in (REBALANCES, AVOIDED):
            with explained(self._lake.called(table.name)):
                schema = schema_of(table, [*EVENT_KEY, "event"])
                known = self._changes[table.name].read(schema, groups, (min(numbers), max(numbers)))
            for *key, text in zip(*map(values_of, known.columns), strict=True):
                if tuple(key) in keys:
                    found[key[0], key[1], key[2]] = typed(text)
        return found

    def _append(self, table: Table, found: Iterable[dict[str, Any]]) -> None:
        known = self._known.get(table.name, set())
        new = [row for row in found if tuple(map(row.get, table.key)) not in known]
        if new:
            with explained(self._lake.called(table.name)):
                self._changes[table.name].append(from_rows(table, new), table.key)


def pieces(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Split records into the pieces that are taken at a time."""
    held: list[Record] = []
    size = 0
    for record in records:
        held.append(record)
        size += len(record.value or b"")
        if len(held) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _keys(known: pa.Table) -> set[tuple[Any, ...]]:
    return set(zip(*map(values_of, known.columns), strict=True))


def _sourced(row: Mapping[str, Any], one: Read) -> dict[str, Any]:
    """The row with the place that it was read from and the whole text of the event."""
    return {**row, **_source(one.record), "event": one.text}


def _source(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("cluster_id", "topic", "partition", "offset")}


def _quarantined(one: Refused) -> dict[str, Any]:
    record = one.record
    return _source(record) | {
        "timestamp": event_rows.moment(record.timestamp_ms),
        "reason": one.reason,
        "detail": one.detail,
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "value": record.value,
    }


def _tally(complete: Sequence[Read], running: Sequence[Read], refused: Sequence[Refused]) -> Tally:
    tally = Tally(running=len(running), quarantined=len(refused))
    for one in complete:
        if one.event["kind"] == event_rows.REBALANCE:
            tally.rebalances += 1
        else:
            tally.avoided += 1
    for other in refused:
        tally.reasons[other.reason] = tally.reasons.get(other.reason, 0) + 1
    return tally
