"""Computes the advice of all groups on executors, one group at a time in each task, and converts
the advice to messages.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from kohort.insight.advisor.rows import SETTING, compute_rows
from kohort.insight.tables.advice import ADVICE
from kohort.insight.tables.history import AVOIDED, REBALANCES
from kohort.pipeline.arrow import from_rows, spark_schema
from kohort.pipeline.lake import Lake

GROUP: Final = ("cluster_id", "group")

EVENTS: Final = StructType([StructField(name, StringType()) for name in (*GROUP, "event")])
"""The columns of a history: `event` is the event as JSON, as written by the broker."""

ERROR: Final = "error"
"""The column with the reason why a group has no advice, in the group's only row; null in other
rows."""

TASKS_PER_CORE: Final = 4
"""Tasks per core: several, because groups differ in the time that they take."""


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
    """Compute each group's rows of the table `advice`, with an additional column ERROR.

    `known` are values of `Setting` fields that are known to have been in force.
    """
    values = dict(known)

    def work(rows: pa.Table) -> pa.Table:
        key = {name: rows[name][0].as_py() for name in GROUP}
        tried, error = compute_rows(key["group"], rows["event"].to_pylist(), days, values)
        advice = from_rows(ADVICE, [key | row for row in tried])
        return advice.append_column(ERROR, pa.array([error] * advice.num_rows, pa.string()))

    schema = StructType([*spark_schema(ADVICE).fields, StructField(ERROR, StringType())])
    return by_group(events).groupBy(*GROUP).applyInArrow(work, schema)


def messages(rows: DataFrame) -> DataFrame:
    """Return key and value of the messages for the topic: one per group, from rows of `advice`.

    The key is cluster and group. `advice_id` identifies the events from which the advice was
    computed: a reader that finds a known id may skip the message.
    """
    shown = rows.where("is_recorded or is_on_front").withColumns(
        {f"{name}_ms": f.unix_millis(name) for name in ("first_at", "last_at")}
    )
    once = ("history_rebalances", "history_stopped_ms", "first_at_ms", "last_at_ms", "unknown")
    figures = (
        *("rebalances", "stopped_ms", "stopped_spread_ms", "unread_ms", "unnoticed_ms"),
        *("notice_ms", "text"),
    )
    choice = f.struct("ordinal", "is_best", f.struct(*SETTING).alias("setting"), *figures)
    choices = f.array_sort(f.collect_list(f.when(~f.col("is_recorded"), choice)))
    grouped = shown.groupBy(*GROUP, "last_sequence").agg(
        *(f.first(name).alias(name) for name in once),
        f.first(f.when(f.col("is_recorded"), choice), ignorenulls=True).alias("recorded"),
        choices.alias("choices"),
    )
    identity = f.concat_ws("/", *GROUP, f.col("last_sequence").cast("string"))
    value = f.struct(
        f.lit(1).alias("schema"),
        identity.alias("advice_id"),
        *(*GROUP, "last_sequence", *once, "recorded", "choices"),
    )
    return grouped.select(
        f.concat_ws("/", *GROUP).alias("key"),
        f.to_json(value, {"ignoreNullFields": "false"}).alias("value"),
    )
