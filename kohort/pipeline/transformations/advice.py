"""Converts rows of the table `advice` to messages, one per group."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kohort.insight.advisor.tasks import SETTING

GROUP: Final = ("cluster_id", "group")


def messages(rows: DataFrame) -> DataFrame:
    """Return the messages for the topic: one record per group.

    The key is cluster and group. `advice_id` identifies the events: a reader that finds the same id
    again may skip the message.
    """
    shown = rows.where("is_recorded or is_on_front").withColumns(
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
    setting = f.struct(*SETTING).alias("setting")
    choice = f.struct("ordinal", "is_best", setting, *figures)
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
