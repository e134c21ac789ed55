"""Writes history records to tables, each event once, however often its record is read.

The key of an event is cluster, group and sequence number. Every table keeps the first row with a
key, so a batch that was partially written before a kill can be written again. Watchers of a cluster
may number the same rebalance differently; the first of their records counts.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from kohort.formats.text import counted
from kohort.groups.history import names as kinds
from kohort.groups.history.entry import ObservedKey, observed_key
from kohort.insight import event_rows
from kohort.insight.analysis.rows import Group
from kohort.insight.parsing import Read, Record, Refused, group_of, read, typed
from kohort.insight.tables.columns import Table
from kohort.insight.tables.history import (
    AVOIDED,
    EVENT_KEY,
    HISTORY,
    MEMBERS,
    QUARANTINE,
    REBALANCES,
    RUNNING,
)
from kohort.pipeline.arrow import from_rows, schema_of, spark_schema, values_of
from kohort.pipeline.errors import retry_on_conflict
from kohort.pipeline.executors import Batches, results_of, slice_of
from kohort.pipeline.faults import explained
from kohort.pipeline.lake import Change, Lake, Tables
from kohort.pipeline.memory import cut, without_gc

BATCH_RECORDS: Final = 20_000
BATCH_BYTES: Final = 48 << 20
"""Maximum size of a chunk's records; with all rows made from them, they take a few hundred MB."""

TASK_RECORDS: Final = 2_000
"""Fewer records are not divided among tasks: starting a task would take longer than writing
them."""

_TABLES: Final = (MEMBERS, REBALANCES, AVOIDED)
"""Tables of complete events; RUNNING has the rebalances in progress. Members are written first: a
reader that sees a rebalance then also finds its members."""

_OBSERVED: Final = {
    REBALANCES: ("outcome", "previous_generation"),
    AVOIDED: ("trigger_member_id",),
}
"""By table: the columns of `observed_key` besides group, observed_partition, observed_offset."""

_Key: TypeAlias = tuple[str, str, int]
"""Cluster, group and sequence."""


@dataclass(slots=True)
class Tally:
    """Counts of the records read, including repetitions."""

    rebalances: int = 0
    avoided: int = 0
    running: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Counts of quarantined records by reason."""
    groups: set[Group] = field(default_factory=set)
    """The groups that had complete events."""
    assigned: int = 0
    """Number of assignments of share groups; they are not stored in a table."""

    def add(self, other: "Tally") -> None:
        self.rebalances += other.rebalances
        self.avoided += other.avoided
        self.running += other.running
        self.assigned += other.assigned
        self.groups |= other.groups
        self.reasons += other.reasons

    @property
    def quarantined(self) -> int:
        return self.reasons.total()

    @property
    def records(self) -> int:
        read = self.rebalances + self.avoided + self.running + self.assigned
        return read + self.quarantined

    def shown(self) -> str:
        text = f"{counted(self.rebalances, 'rebalance')}, {self.avoided:,} avoided"
        if self.running:
            text += f", {self.running:,} of them reported while ongoing"
        if self.assigned:
            text += f"; {counted(self.assigned, 'assignment')} of share groups left out"
        if self.quarantined:
            reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(self.reasons.items()))
            text += f"; {self.quarantined:,} in quarantine ({reasons})"
        return text


class Ingest:
    """Writes batches of records in Spark tasks. Each task gets all records of some groups, in the
    order of their source. Raises ReportedError.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        ids = retry_on_conflict(
            lambda: {table.name: lake.create(table.name, spark_schema(table)) for table in HISTORY}
        )
        self.table_id: Final = ids[REBALANCES.name]
        """Id of the table `rebalances`; checkpoints belong to the table with this id."""
        self.writer: Final = Writer(lake.tables)
        """Writes records in this process, if there are few."""

    def write(self, records: DataFrame, cluster_id: str, count: int | None = None) -> Tally:
        """Write the records, which have the columns COLUMNS. `count` is their approximate number;
        None: unknown.
        """
        cores = self._lake.spark.sparkContext.defaultParallelism
        tasks = min(cores, self._lake.tables.writers_max)
        if count is not None:
            tasks = min(tasks, -(-count // TASK_RECORDS))
        if tasks > 1:
            divided = routed(records, cluster_id).repartition(tasks, "slice")
            records = divided.sortWithinPartitions("file", "partition", "offset")
        else:
            # One task reads all partitions of the source, in their order.
            records = records.coalesce(1)
        tally = Tally()
        with explained(f"writing the history to {self._lake.root}"):
            for other in results_of(records, partial(_written, self._lake.tables, cluster_id)):
                tally.add(other)
        return tally

    def compact(self) -> None:
        """Compact each table if many batches have left small files."""
        for table in HISTORY:
            self._lake.compact_appended(table.name)


def _written(tables: Tables, cluster_id: str, batches: Batches) -> Iterator[Tally]:
    names = ("topic", "partition", "offset", "ms", "key", "value")
    rows = (
        row
        for batch in batches
        for row in zip(*map(values_of, map(batch.column, names)), strict=True)
    )
    yield Writer(tables).write_all(Record(cluster_id, *row) for row in rows)


class Writer:
    """Writes records in any process, one chunk after the other."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def write_all(self, records: Iterable[Record]) -> Tally:
        """Write a batch, in chunks that fit into memory."""
        tally = Tally()
        with without_gc():
            for chunk in cut(records, _size, BATCH_RECORDS, BATCH_BYTES):
                parsed = [read(record) for record in chunk]
                tally.add(retry_on_conflict(lambda parsed=parsed: self._write_chunk(parsed)))  # type: ignore[misc]
        return tally

    def _write_chunk(self, parsed: Sequence[Read | Refused]) -> Tally:
        events = [one for one in parsed if isinstance(one, Read)]
        running = [one for one in events if event_rows.is_running(one.event)]
        complete = [one for one in events if event_rows.has_row(one.event)]
        batch = _Batch(self._tables, complete)
        refused = [one for one in parsed if isinstance(one, Refused)] + batch.refused
        self._add_missing(QUARANTINE, list(map(_quarantined, refused)))
        self._add_missing(
            RUNNING, [_sourced(event_rows.running(one.event), one) for one in running]
        )
        batch.write()
        assigned = len(events) - len(running) - len(complete)
        return replace(_tally(complete, running, refused), assigned=assigned)

    def _add_missing(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        if not rows:
            return
        with explained(self._tables.label(table.name)):
            change = self._tables.begin(table.name)
            groups = {(row["cluster_id"], row["group"]) for row in rows if "group" in row}
            known = change.read(schema_of(table, table.key), groups or None)
            new = {tuple(map(row.get, table.key)): row for row in reversed(rows)}
            for key in _keys(known):
                new.pop(key, None)
            if new:
                change.append(from_rows(table, reversed(new.values())))


class _Batch:
    """The complete events of a chunk, and the keys that the tables already have."""

    def __init__(self, tables: Tables, events: Sequence[Read]) -> None:
        self._tables = tables
        self.refused: list[Refused] = []
        """Events whose sequence number is taken by a different event of the group."""
        self._events: dict[_Key, Read] = {}
        self._known: dict[str, set[tuple[Any, ...]]] = {}
        self._observed: set[tuple[str, ObservedKey]] = set()
        """Cluster and `observed_key` of each watcher's event in the tables or in this batch."""
        self._changes: dict[str, Change] = {}
        if events:
            self._read_known(events)
            if any(observed_key(parsed.event) for parsed in events):
                self._read_observed({parsed.key[:2] for parsed in events})
            self._select(events)

    def write(self) -> None:
        """Write the missing rows of each table, in the order of _TABLES."""
        events = self._events.values()
        is_rebalance = [one for one in events if one.event["kind"] == kinds.REBALANCE]
        is_avoided = [one for one in events if one.event["kind"] == kinds.AVOIDED]
        members = (
            row | {"cluster_id": one.record.cluster_id}
            for one in is_rebalance
            for row in event_rows.members(one.event)
        )
        self._append(MEMBERS, members)
        self._append(
            REBALANCES, (_sourced(event_rows.rebalance(one.event), one) for one in is_rebalance)
        )
        self._append(AVOIDED, (_sourced(event_rows.avoided(one.event), one) for one in is_avoided))

    def _read_known(self, events: Sequence[Read]) -> None:
        for table in _TABLES:
            with explained(self._tables.label(table.name)):
                change = self._changes[table.name] = self._tables.begin(table.name)
                schema = schema_of(table, table.key)
                self._known[table.name] = _keys(
                    _around(change, schema, [one.key for one in events])
                )

    def _read_observed(self, groups: set[tuple[str, str]]) -> None:
        """Read the `observed_key` of each stored event from a watcher. Another watcher may have
        stored a rebalance of this batch under a different sequence number.
        """
        for table, apart in _OBSERVED.items():
            names = ["cluster_id", "group", "observed_partition", "observed_offset", *apart]
            with explained(self._tables.label(table.name)):
                rows = self._changes[table.name].read(schema_of(table, names), groups)
            for cluster_id, *values in zip(*map(values_of, rows.columns), strict=True):
                group, partition, offset, *more = values
                if offset is not None:
                    event: dict[str, Any] = {
                        "kind": kinds.AVOIDED if table is AVOIDED else kinds.REBALANCE,
                        "group": group,
                        "observed": {"partition": partition, "offset": offset},
                        **dict(zip(apart, more, strict=True)),
                    }
                    event["trigger"] = {"member_id": event.get("trigger_member_id")}
                    self._observed.add((cluster_id, observed_key(event) or ()))

    def _is_seen(self, parsed: Read) -> bool:
        """Whether a watcher's record of this event was read before; add the event's key if not."""
        key = observed_key(parsed.event)
        if key is None:
            return False
        seen = parsed.record.cluster_id, key
        is_seen = seen in self._observed
        self._observed.add(seen)
        return is_seen

    def _select(self, events: Sequence[Read]) -> None:
        """Select the events to write; refuse those that contradict an earlier event."""
        present = self._known[REBALANCES.name] | self._known[AVOIDED.name]
        repeated = {parsed.key for parsed in events} & present
        stored = self._stored_events(repeated) if repeated else {}
        for parsed in events:
            if self._is_seen(parsed):
                continue
            first = stored.get(parsed.key)
            if first is None and parsed.key in self._events:
                first = self._events[parsed.key].event
            if first is None:
                self._events[parsed.key] = parsed
            elif first != parsed.event:
                _, group, sequence = parsed.key
                detail = f"another event of the group {group} has the sequence number {sequence}"
                self.refused.append(Refused(parsed.record, "sequence_taken", detail))

    def _stored_events(self, keys: set[_Key]) -> dict[_Key, dict[str, Any]]:
        stored = {}
        for table in (REBALANCES, AVOIDED):
            with explained(self._tables.label(table.name)):
                schema = schema_of(table, [*EVENT_KEY, "event"])
                known = _around(self._changes[table.name], schema, keys)
            for *key, text in zip(*map(values_of, known.columns), strict=True):
                if tuple(key) in keys:
                    stored[key[0], key[1], key[2]] = typed(text)
        return stored

    def _append(self, table: Table, rows: Iterable[dict[str, Any]]) -> None:
        known = self._known.get(table.name, set())
        new = [row for row in rows if tuple(map(row.get, table.key)) not in known]
        if new:
            with explained(self._tables.label(table.name)):
                self._changes[table.name].append(from_rows(table, new))


def _size(record: Record) -> int:
    return len(record.value or b"")


def _around(change: Change, schema: pa.Schema, keys: Collection[_Key]) -> pa.Table:
    """Read the rows with these keys; the result may also have other rows of their groups."""
    numbers = [key[2] for key in keys]
    return change.read(schema, {key[:2] for key in keys}, (min(numbers), max(numbers)))


def _keys(known: pa.Table) -> set[tuple[Any, ...]]:
    return set(zip(*map(values_of, known.columns), strict=True))


def _sourced(row: Mapping[str, Any], parsed: Read) -> dict[str, Any]:
    """Return the row with its source and the complete text of the event."""
    return {**row, **_source(parsed.record), "event": parsed.text}


def _source(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("cluster_id", "topic", "partition", "offset")}


def _quarantined(refused: Refused) -> dict[str, Any]:
    record = refused.record
    return _source(record) | {
        "timestamp": event_rows.moment(record.timestamp_ms),
        "reason": refused.reason,
        "detail": refused.detail,
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "value": record.value,
    }


def _tally(complete: Sequence[Read], running: Sequence[Read], refused: Sequence[Refused]) -> Tally:
    rebalances = sum(one.event["kind"] == kinds.REBALANCE for one in complete)
    return Tally(
        rebalances,
        len(complete) - rebalances,
        len(running),
        Counter(one.reason for one in refused),
        {one.key[:2] for one in complete},
    )


COLUMNS: Final = pa.schema(
    [
        # Index of the file in the order in which files are read; 0 for a topic.
        ("file", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
DDL: Final = (
    "file int, topic string, partition int, offset bigint, ms bigint, key binary, value binary"
)


def routed(records: DataFrame, cluster_id: str) -> DataFrame:
    """Return the records with a column `slice`, which is the same for all records of a group."""
    return records.mapInArrow(partial(_routed, cluster_id), f"{DDL}, slice int")


def _routed(cluster_id: str, batches: Batches) -> Batches:
    for batch in batches:
        slices = [slice_of(cluster_id, group_of(value)) for value in batch["value"].to_pylist()]
        yield batch.append_column("slice", pa.array(slices, pa.int32()))
