"""The operations of `Transaction` as Spark queries, for tables that need more features of Delta."""

from collections.abc import Collection, Sequence
from functools import reduce
from operator import or_

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from kohort.pipeline.arrow import conformed
from kohort.pipeline.catalog import text
from kohort.pipeline.schemas import Table


class SparkTransaction:
    """Like `Transaction`. Appends are merges, so rows that another run has added are not
    duplicated.
    """

    is_new = False

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark, self._root = spark, root

    def fits(self, table: Table) -> bool:
        return set(self._frame().columns) == set(table.names)

    def read(
        self,
        schema: pa.Schema,
        groups: Collection[tuple[str, str]] | None = None,
        sequences: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Return the rows of these groups, or all rows, in these columns."""
        frame = self._frame()
        if groups is not None:
            frame = frame.where(_in_groups(groups))
        if sequences is not None:
            frame = frame.where(f.col("sequence").between(*sequences))
        present = [name for name in schema.names if name in frame.columns]
        return conformed(frame.select(*present).toArrow(), schema)

    def replacing(
        self, groups: Collection[tuple[str, str]] | None, table: Table | None = None
    ) -> "SparkReplacement":
        """Return a replacement for the rows of these groups, or for all rows."""
        return SparkReplacement(self._spark, self._root, groups, table)

    def append(self, rows: pa.Table, key: Sequence[str]) -> None:
        """Add the rows whose key is not in the table."""
        same = " AND ".join(f"old.`{name}` <=> new.`{name}`" for name in key)
        (
            DeltaTable.forPath(self._spark, self._root)
            .alias("old")
            .merge(self._spark.createDataFrame(rows).alias("new"), same)
            .whenNotMatchedInsertAll()
            .execute()
        )

    def _frame(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._root)


class SparkReplacement:
    def __init__(
        self,
        spark: SparkSession,
        root: str,
        groups: Collection[tuple[str, str]] | None,
        table: Table | None,
    ) -> None:
        self._spark, self._root = spark, root
        self._groups, self._table = groups, table
        self._held: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)

    def commit(self, schema: pa.Schema) -> bool:
        """Return whether the table changed; True if unknown."""
        rows = pa.concat_tables([schema.empty_table(), *self._held])
        writer = self._spark.createDataFrame(rows).write.format("delta").mode("overwrite")
        if self._table is not None:
            writer = writer.option("overwriteSchema", "true")
        elif self._groups is not None:
            writer = writer.option("replaceWhere", _in_groups_sql(self._groups))
        writer.save(self._root)
        return True


def _in_groups(groups: Collection[tuple[str, str]]) -> Column:
    """Return the condition that a row belongs to one of these groups, given as (cluster, group)."""
    conditions = [
        (f.col("cluster_id") == cluster_id) & (f.col("group") == group)
        for cluster_id, group in sorted(groups)
    ]
    return reduce(or_, conditions, f.lit(False))


def _in_groups_sql(groups: Collection[tuple[str, str]]) -> str:
    conditions = [
        f"(cluster_id = {text(cluster_id)} AND `group` = {text(group)})"
        for cluster_id, group in sorted(groups)
    ]
    return " OR ".join(conditions) or "false"
