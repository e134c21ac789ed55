"""Computes the advice for many groups on all cores of a Spark session.

Arrow reads the events and writes the rows: Spark queries over a few hundred rows would take longer
than the replays. Spark only distributes the tasks, in three rounds for as many groups as fit into
the driver's memory.
"""

import json
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from kohort.insight.advisor import tasks
from kohort.insight.advisor.tasks import GroupTrace, Key
from kohort.insight.errors import ReportedError
from kohort.insight.output import counted
from kohort.pipeline.arrow import from_rows, schema_of, values_of
from kohort.pipeline.faults import explained
from kohort.pipeline.lake import Lake
from kohort.pipeline.memory import batched
from kohort.pipeline.schemas import AVOIDED, EVENT_KEY, REBALANCES
from kohort.pipeline.schemas.advice import ADVICE

Events = Mapping[Key, list[str]]
"""The events of groups as JSON, as written by the broker."""

EVENTS_AT_ONCE: Final = 20_000
"""Maximum number of events in memory, unless a single group has more."""

FAILED_SHOWN: Final = 20

TASKS_PER_CORE: Final = 4
"""Several tasks for each core, so that long and short work items even out."""

_ITEMS: Final = pa.schema([("place", pa.int64()), ("item", pa.binary())])


def events_in_lake(
    lake: Lake, *, cluster_id: str = "", groups: Collection[str] = ()
) -> Iterator[Events]:
    """Yield the events in the tables of `kohort pipeline rebalances`, as many groups at a time as
    fit into memory, sorted by name.

    Args:
        cluster_id: only groups of this cluster; empty for all.
        groups: only these groups; empty for all.

    Raises:
        ReportedError: the tables do not exist, or cannot be read.
    """
    counts: dict[Key, int] = {}
    for name in (REBALANCES.name, AVOIDED.name):
        table = REBALANCES if name == REBALANCES.name else AVOIDED
        with explained(lake.label(name)):
            change = lake.begin(name)
            if change.is_new and table is REBALANCES:
                raise ReportedError(
                    f"the lake {lake.root} has no table {name}; run the job that creates it first"
                )
            rows = change.read(schema_of(table, EVENT_KEY[:2]))
        for key in zip(*map(values_of, rows.columns), strict=True):
            counts[key] = counts.get(key, 0) + 1
    wanted = {
        key: count
        for key, count in sorted(counts.items())
        if cluster_id in {"", key[0]} and (not groups or key[1] in groups)
    }
    for keys in batched(wanted, EVENTS_AT_ONCE):
        events: dict[Key, list[str]] = {key: [] for key in keys}
        for table in (REBALANCES, AVOIDED):
            with explained(lake.label(table.name)):
                rows = lake.begin(table.name).read(
                    schema_of(table, [*EVENT_KEY[:2], "event"]), keys
                )
            for cluster, group, text in zip(*map(values_of, rows.columns), strict=True):
                events[cluster, group].append(text)
        yield events


def events_in_lines(cluster_id: str, lines: Iterable[bytes]) -> tuple[dict[Key, list[str]], int]:
    """Return the events in a file's lines, and the number of other lines."""
    events: dict[Key, list[str]] = {}
    bad = 0
    for line in lines:
        text = line.decode(errors="replace")
        try:
            group = json.loads(text)["group"]
        except (ValueError, KeyError, TypeError):
            group = None
        if isinstance(group, str):
            events.setdefault((cluster_id, group), []).append(text)
        else:
            bad += 1
    return events, bad


def in_batches(events: Events) -> Iterator[Events]:
    """Divide events into batches of groups that fit into memory, sorted by name."""
    for keys in batched({key: len(events[key]) for key in sorted(events)}, EVENTS_AT_ONCE):
        yield {key: events[key] for key in keys}


class Advisor:
    """Computes rows of the table `advice`."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        days: int,
        known: Mapping[str, Any],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`known` are values of `Setting` fields that are known to have been in force. `report` is
        called with a line for each group without advice, and with the amount of work.
        """
        self._spark, self._days, self._known, self._report = spark, days, dict(known), report
        self.groups = self.failed = 0
        """Groups with advice, and groups that failed; `report` gets the reasons of the first
        FAILED_SHOWN."""

    def rows(self, events: Events) -> pa.Table:
        """Return the rows of these groups, sorted by name.

        Raises:
            ReportedError
        """
        with explained("reading the history"):
            read = run_on_cores(
                self._spark,
                tasks.read,
                [
                    tasks.to_read(key, texts, self._days, self._known)
                    for key, texts in sorted(events.items())
                    if texts
                ],
            )
        traces: list[GroupTrace] = [pickle.loads(group_trace) for group_trace in read]  # noqa: S301 - made by `tasks.read`.
        failed = [group_trace for group_trace in traces if group_trace.error]
        for group_trace in failed[: max(FAILED_SHOWN - self.failed, 0)]:
            self._report(f"group {group_trace.key[1]}: {group_trace.error}")
        self.failed += len(failed)
        traces = [group_trace for group_trace in traces if group_trace.trace is not None]
        self.groups += len(traces)
        count = sum(group_trace.settings for group_trace in traces)
        groups, replays = counted(len(traces), "group"), counted(count, "replay")
        self._report(f"{groups}, {replays} of a group under a setting")
        parts = [tasks.to_replay(group_trace) for group_trace in traces]
        with explained("replaying"):
            replayed = iter(
                run_on_cores(
                    self._spark,
                    tasks.replay,
                    [group_trace for group_tasks in parts for group_trace in group_tasks],
                )
            )
            weighed = run_on_cores(
                self._spark,
                tasks.weigh,
                [
                    tasks.to_weigh(group_trace, [next(replayed) for _ in group_tasks])
                    for group_trace, group_tasks in zip(traces, parts, strict=True)
                ],
            )
        rows = (row for result in weighed for row in pickle.loads(result))  # noqa: S301 - as above.
        return from_rows(ADVICE, rows)


def run_on_cores(
    spark: SparkSession, function: Callable[[bytes], bytes], items: Sequence[bytes]
) -> list[bytes]:
    """Return the results of a function for each item in order, computed by Spark tasks.

    The function must be importable on the executors.

    Raises:
        PySparkException, Py4JError: the function failed on an executor.
    """
    if not items:
        return []
    tasks = min(len(items), spark.sparkContext.defaultParallelism * TASKS_PER_CORE)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = [function(item) for item in batch.column(1).to_pylist()]
            columns = [batch.column(0), pa.array(results, pa.binary())]
            yield pa.record_batch(columns, schema=_ITEMS)

    given = pa.table([pa.array(range(len(items))), pa.array(items, pa.binary())], schema=_ITEMS)
    frame = spark.createDataFrame(given).repartition(tasks)
    done = frame.mapInArrow(work, "place bigint, item binary").toArrow()
    results = dict(zip(done["place"].to_pylist(), done["item"].to_pylist(), strict=True))
    return [results[place] for place in range(len(items))]
