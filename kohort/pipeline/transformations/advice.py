"""Events to traces, traces and settings to outcomes, outcomes to advice: the advisor over Spark.

A group's events become one small trace; (trace, a few settings) pairs are spread over all cores,
and what came of them is gathered by group again. How Spark cuts the work changes nothing of it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import astuple, fields
from typing import Any, Final

import pandas as pd  # type: ignore[import-untyped]  # Its stubs come apart from it.
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from kohort.pipeline.advisor.advice import advise
from kohort.pipeline.advisor.prediction import Prediction, predict
from kohort.pipeline.advisor.reading import read_trace
from kohort.pipeline.advisor.setting import Setting, grid
from kohort.pipeline.advisor.trace import Trace
from kohort.pipeline.advisor.words import words
from kohort.pipeline.advisor.working_out import beyond_the_grid, lately
from kohort.pipeline.schemas.advice import ADVICE
from kohort.pipeline.schemas.columns import BYTES, SMALL, TEXT, WHOLE
from kohort.pipeline.transformations.common import GROUP, conform

EVENTS: Final = StructType(
    [StructField("cluster_id", TEXT), StructField("group", TEXT), StructField("event", TEXT)]
)
"""What comes in: events of the history as JSON."""
_TRACES: Final = StructType(
    [
        StructField("cluster_id", TEXT),
        StructField("group", TEXT),
        StructField("trace", BYTES),
        StructField("last_sequence", WHOLE),
        StructField("settings", SMALL),
        StructField("error", TEXT),
    ]
)
_OUTCOMES: Final = StructType(
    [
        StructField("cluster_id", TEXT),
        StructField("group", TEXT),
        StructField("ordinal", SMALL),
        StructField("prediction", BYTES),
    ]
)
SETTINGS_PER_ROW: Final = 8
"""A tenth of a second's work or some seconds', as groups are: small enough to be spread evenly."""


def traces(events: DataFrame, *, days: int, known: Mapping[str, Any]) -> DataFrame:
    """One row for each group: its trace of the last `days`, or `error`, why there is none.

    Args:
        known: fields of `Setting` that the groups are known to have been run under.
    """
    fixed = dict(known)

    def read(key: tuple[str, ...], rows: pd.DataFrame) -> pd.DataFrame:
        cluster_id, group = key
        try:
            records = lately([json.loads(text) for text in rows["event"]], days)
            trace = read_trace(group, records, fixed)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _row(cluster_id, group, error=f"not a history: {error!r}")
        if trace is None:
            return _row(cluster_id, group, error="no rebalance in it")
        last = max(int(record.get("sequence") or 0) for record in records)
        return _row(cluster_id, group, trace=trace, last=last)

    return events.select(*EVENTS.names).groupBy(*GROUP).applyInPandas(read, _TRACES)


def _row(
    cluster_id: str, group: str, *, trace: Trace | None = None, last: int = 0, error: str = ""
) -> pd.DataFrame:
    data = None if trace is None else pickle.dumps(trace)
    count = 0 if trace is None else len(grid(trace))
    row = (cluster_id, group, data, last, count, error or None)
    return pd.DataFrame([row], columns=_TRACES.names)


def outcomes(found: DataFrame, *, tasks: int) -> DataFrame:
    """The outcomes of `traces`: one row for each group and setting, worked out in about so many
    tasks.
    """
    last = f.greatest(f.ceil(f.col("settings") / SETTINGS_PER_ROW) - 1, f.lit(0))
    parts = found.where("settings > 0").select(
        *GROUP, "trace", f.explode(f.sequence(f.lit(0).cast("long"), last)).alias("part")
    )
    spread = parts.repartition(tasks, *GROUP, "part")
    return spread.mapInPandas(_replay_all, _OUTCOMES)


def _replay_all(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        for row in frame.itertuples(index=False):
            trace: Trace = pickle.loads(row.trace)  # noqa: S301 - made by `traces`, not by a stranger.
            first = int(row.part) * SETTINGS_PER_ROW
            chosen = grid(trace)[first : first + SETTINGS_PER_ROW]
            made = [
                (row.cluster_id, row.group, first + place, pickle.dumps(predict(trace, setting)))
                for place, setting in enumerate(chosen)
            ]
            yield pd.DataFrame(made, columns=_OUTCOMES.names)


def advice(found: DataFrame, tried: DataFrame) -> DataFrame:
    """The rows of the table ADVICE, from `traces` and `outcomes`."""

    def weigh(traces_of: pd.DataFrame, outcomes_of: pd.DataFrame) -> pd.DataFrame:
        if outcomes_of.empty:
            return pd.DataFrame([], columns=_WEIGHED.names)
        one = traces_of.iloc[0]
        trace: Trace = pickle.loads(one["trace"])  # noqa: S301 - as above.
        ordered = outcomes_of.sort_values("ordinal")
        predictions = [pickle.loads(data) for data in ordered["prediction"]]  # noqa: S301 - as above.
        predictions += beyond_the_grid(trace, predictions)
        head = (one["cluster_id"], one["group"])
        return _weighed(head, trace, predictions, int(one["last_sequence"]))

    both = found.groupBy(*GROUP).cogroup(tried.groupBy(*GROUP))
    weighed = both.applyInPandas(weigh, _WEIGHED)
    moments = {name: f.timestamp_millis(f.col(name)) for name in ("first_at", "last_at")}
    return conform(weighed.withColumns(moments), ADVICE)


_WEIGHED: Final = StructType(
    [
        StructField(one.name, WHOLE if one.name in {"first_at", "last_at"} else one.type)
        for one in ADVICE.columns
    ]
)
"""The columns of ADVICE, with moments in ms."""
_SETTING: Final = tuple(one.name for one in fields(Setting))


def _weighed(
    head: tuple[str, str], trace: Trace, predictions: list[Prediction], last: int
) -> pd.DataFrame:
    told = advise(trace, predictions)
    rows = []
    for ordinal, one in enumerate(predictions):
        by_member = [
            {"member": slot.name, "stopped_ms": stopped_ms}
            for slot, stopped_ms in zip(trace.slots, one.stopped_by_slot, strict=True)
        ]
        rows.append(
            {
                "cluster_id": head[0],
                "group": head[1],
                "ordinal": ordinal,
                **dict(zip(_SETTING, astuple(one.setting), strict=True)),
                "is_recorded": one is told.recorded,
                "is_on_front": one in told.front or one is told.quicker,
                "is_best": one == told.best,
                "rebalances": one.rebalances,
                "stopped_ms": one.stopped_ms,
                "stopped_longest_ms": one.stopped_longest_ms,
                "stopped_by_member": by_member,
                "partition_count": trace.partition_count,
                "unread_ms": one.unread_ms,
                "unread_longest_ms": one.unread_longest_ms,
                "deaths": one.deaths,
                "unnoticed_ms": one.unnoticed_ms,
                "unnoticed_longest_ms": one.unnoticed_longest_ms,
                "notice_ms": one.notice_ms,
                "text": words(told.recorded, one) if ordinal else told.check,
                "history_rebalances": trace.rebalances,
                "history_stopped_ms": trace.stopped_ms,
                "first_at": trace.begin_ms,
                "last_at": trace.end_ms,
                "last_sequence": last,
                "unknown": list(trace.unknown),
                "unranked": list(told.unranked),
                "quicker_member": one.quicker,
                "stopped_spread_ms": one.stopped_spread_ms,
            }
        )
    return pd.DataFrame(rows, columns=_WEIGHED.names)


def messages(rows: DataFrame) -> DataFrame:
    """The messages of ADVICE: one record for each group, to be sent to a topic.

    The key is cluster and group, and `advice_id` says which events it is about: a reader who sees
    the same twice may skip it.
    """
    told = rows.where("is_recorded or is_on_front").withColumns(
        {
            "first_at_ms": f.unix_millis("first_at"),
            "last_at_ms": f.unix_millis("last_at"),
        }
    )
    once = ("history_rebalances", "history_stopped_ms", "first_at_ms", "last_at_ms", "unknown")
    figures = (
        "rebalances",
        "stopped_ms",
        "stopped_spread_ms",
        "unread_ms",
        "unnoticed_ms",
        "notice_ms",
        "text",
    )
    setting = f.struct(*_SETTING).alias("setting")
    choice = f.struct("ordinal", "is_best", setting, *figures)
    choices = f.array_sort(f.collect_list(f.when(~f.col("is_recorded"), choice)))
    grouped = told.groupBy(*GROUP, "last_sequence").agg(
        *(f.first(name).alias(name) for name in once),
        f.first(f.when(f.col("is_recorded"), choice), ignorenulls=True).alias("recorded"),
        choices.alias("choices"),
    )
    identity = f.concat_ws("/", *GROUP, f.col("last_sequence").cast("string"))
    value = f.struct(
        f.lit(1).alias("schema"),
        identity.alias("advice_id"),
        *GROUP,
        "last_sequence",
        *once,
        "recorded",
        "choices",
    )
    return grouped.select(
        f.concat_ws("/", *GROUP).alias("key"),
        f.to_json(value, {"ignoreNullFields": "false"}).alias("value"),
    )
