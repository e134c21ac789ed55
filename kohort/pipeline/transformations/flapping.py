"""Partitions that keep changing hands."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kohort.pipeline.schemas import FLAPPING
from kohort.pipeline.transformations.common import GROUP, between_ms, conform
from kohort.pipeline.transformations.ownership import by_partition


def flapping(partitions: DataFrame, *, moves: int, window_ms: int) -> DataFrame:
    """The table `flapping`, of the table `partitions`: what moved so often in so long."""
    moved_together = (*GROUP, "topic", "partitions")
    in_order = Window.partitionBy(*moved_together).orderBy("sequence")
    owned = partitions.where(f.col("state") == "owned").withColumn(
        "before", f.lag("owner").over(in_order)
    )
    # One row for each time with one owner, however often that one stopped in between.
    stints = (
        owned.where(f.col("before").isNull() | (f.col("before") != f.col("owner")))
        .withColumn("at_ms", f.unix_millis("from_at"))
        .withColumn("held_ms", between_ms(f.lag("from_at").over(in_order), f.col("from_at")))
        .withColumn("last_but_one", f.lag("owner", 2).over(in_order))
    )
    lately = Window.partitionBy(*moved_together).orderBy("at_ms").rangeBetween(-window_ms, 0)
    moved = stints.where(f.col("before").isNotNull()).withColumn(
        "in_window", f.count("*").over(lately)
    )
    frame = (
        moved.groupBy(*moved_together)
        .agg(
            f.count("*").alias("moves"),
            f.max("in_window").alias("moves_in_window"),
            f.max_by("from_at", f.struct("in_window", "at_ms")).alias("window_ended_at"),
            f.size(
                f.array_union(f.collect_set("owner"), f.collect_set("before")),
            ).alias("owner_count"),
            f.count(f.when(f.col("owner") == f.col("last_but_one"), 1)).alias("returns"),
            f.min("held_ms").alias("shortest_ms"),
        )
        .where(f.col("moves_in_window") >= moves)
    )
    return conform(by_partition(frame), FLAPPING)
