"""Computes the advice of all groups on executors, one group after the other in each task."""

import pickle
from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from kohort.insight.advisor import tasks
from kohort.insight.tables import AVOIDED, REBALANCES
from kohort.insight.tables.advice import ADVICE
from kohort.pipeline.arrow import from_rows
from kohort.pipeline.lake import Lake
from kohort.pipeline.transformations.advice import GROUP
from kohort.pipeline.types import spark_schema

EVENTS: Final = StructType([StructField(name, StringType()) for name in (*GROUP, "event")])
"""The columns of a history: `event` is the event as JSON, as written by the broker."""

ERROR: Final = "error"
"""The column with the reason why a group has no advice, in its only row; else null."""

TASKS_PER_CORE: Final = 4
"""Several tasks for each core, so that groups of more and less work even out."""


def events_in_lake(lake: Lake, *, cluster_id: str = "", groups: Collection[str] = ()) -> DataFrame:
    """Return the events in the tables of `kohort pipeline rebalances`.

    Args:
        cluster_id: only groups of this cluster; empty for all.
        groups: only these groups; empty for all.

    Raises:
        ReportedError: the tables do not exist, or cannot be read.
    """
    events = lake.read(REBALANCES.name).select(*EVENTS.names)
    events = events.unionByName(lake.read(AVOIDED.name).select(*EVENTS.names))
    if cluster_id:
        events = events.where(f.col("cluster_id") == cluster_id)
    return events.where(f.col("group").isin(*groups)) if groups else events


def by_group(events: DataFrame) -> DataFrame:
    """Return the events divided by group into several partitions for each core."""
    count = events.sparkSession.sparkContext.defaultParallelism * TASKS_PER_CORE
    return events.select(*EVENTS.names).repartition(count, *GROUP)


def advice_of(events: DataFrame, *, days: int, known: Mapping[str, Any]) -> DataFrame:
    """Return rows of the table `advice`, with a column ERROR.

    `known` are values of `Setting` fields that are known to have been in force.
    """
    values = dict(known)

    def work(rows: pa.Table) -> pa.Table:
        key = rows["cluster_id"][0].as_py(), rows["group"][0].as_py()
        task = tasks.to_read(key, rows["event"].to_pylist(), days, values)
        trace = pickle.loads(tasks.read(task))  # noqa: S301 - made by `tasks`, as are the others.
        if trace.trace is None:
            advice, error = from_rows(ADVICE, [dict(zip(GROUP, key, strict=True))]), trace.error
        else:
            replayed = [tasks.replay(task) for task in tasks.to_replay(trace)]
            weighed = tasks.weigh(tasks.to_weigh(trace, replayed))
            advice, error = from_rows(ADVICE, pickle.loads(weighed)), None  # noqa: S301
        return advice.append_column(ERROR, pa.array([error] * advice.num_rows, pa.string()))

    schema = StructType([*spark_schema(ADVICE).fields, StructField(ERROR, StringType())])
    return by_group(events).groupBy(*GROUP).applyInArrow(work, schema)
