"""What several transformations need."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kohort.pipeline.schemas import Table

GROUP: Final = ("cluster_id", "group")
EVENT: Final = (*GROUP, "sequence")
PARTITION: Final = (*GROUP, "topic", "partition")

TOGETHER: Final = "spark.sql.inMemoryColumnarStorage.batchSize"
"""Spark's name for how many rows that are kept in memory are put together."""

GONE: Final = (
    "left",
    "removed_by_admin",
    "session_expired",
    "rebalance_timeout",
    "sync_expired",
    "new_member_expired",
)
"""Fates of members that are none any more, and whose process is not there either."""

MOMENT_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999; Spark has no words for what comes later."""


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """The columns of a table, in its order and of its types."""
    return frame.select(
        *(
            f.col(column.name)
            .cast(column.type)
            .alias(column.name, metadata=_comment(column.meaning))
            for column in table.columns
        )
    )


def _comment(meaning: str) -> dict[str, str]:
    return {"comment": meaning}


def moment(ms: Column) -> Column:
    """Milliseconds since 1970 as a timestamp; null if they are no time at all."""
    return f.when(ms.between(0, MOMENT_MAX_MS), f.timestamp_millis(ms))


def later(start: Column, ms: Column) -> Column:
    """So many milliseconds after a timestamp; null if one of both is."""
    return moment(f.try_add(f.unix_millis(start), ms))


def between_ms(start: Column, end: Column) -> Column:
    """From one timestamp to another; 0 where the wall clock was set back in between."""
    return f.greatest(f.unix_millis(end) - f.unix_millis(start), f.lit(0))


def count_of(condition: Column) -> Column:
    """An aggregate: of how many rows it is true."""
    return f.count(f.when(condition, 1))


def total(ms: Column) -> Column:
    """An aggregate: the sum, 0 of nothing, null of more than a number holds."""
    return f.when(f.count(ms) == 0, f.lit(0)).otherwise(f.try_sum(ms))


def process(prefix: str = "") -> Column:
    """The name that a process keeps when it starts again: the instance id, else the client id."""
    names: Sequence[str] = ("instance_id", "client_id", "member_id")
    return f.coalesce(*(f.col(f"{prefix}{name}") for name in names))
