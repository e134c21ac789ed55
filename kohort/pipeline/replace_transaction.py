"""Rows of some groups replaced by others, at the cost of the files that they are in.

Tables of findings are written in the order of their groups, so many rows to a file, and Delta notes
the first and the last group of each file. A file that cannot have rows of these groups stays as it
is; the others are written again, without those rows. Delta's own ways (MERGE, `replaceWhere`) come
to the same table with three queries for each that is made here.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from kohort.pipeline import jvm
from kohort.pipeline.transformations.common import GROUP

FILE_ROWS: Final = 20_000
"""At most in a file: what a group's change costs beside its own rows."""

SMALL_FILES_MAX: Final = 8
"""If there are more files that are not half full, they are put together on the occasion."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups whose rows are replaced."""

    frame: DataFrame
    """Has the columns of GROUP."""
    listed: Collection[tuple[str, str]] | None
    """Cluster and group of each; None if they are too many for a list."""

    def are_of(self) -> Column | None:
        """Whether a row is of one of them, where they are listed."""
        if self.listed is None:
            return None
        ids: dict[str, list[str]] = {}
        for cluster_id, group in sorted(self.listed):
            ids.setdefault(cluster_id, []).append(group)
        conditions = [
            (f.col("cluster_id") == cluster_id) & f.col("group").isin(*names)
            for cluster_id, names in ids.items()
        ]
        return reduce(or_, conditions, f.lit(False))


class ReplaceTransaction:
    """A transaction of Delta's that has read all of a table. Raises what py4j raises."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._java = jvm.of(spark)
        self._log = jvm.delta_log(spark, path)
        self._transaction = self._log.startTransaction()
        self._transaction.readWholeTable()

    def replace(self, rows: DataFrame, groups: Groups, *, are_many: bool) -> None:
        """Put `rows` in the place of all rows of `groups`.

        Args:
            rows: with the columns of the table.
            are_many: see `in_order`.
        """
        touched = self._touched(groups)
        if touched:
            there = self._rows_of(touched)
            are_of = groups.are_of()
            if are_of is not None:
                there = there.where(~are_of)
            else:
                there = there.join(f.broadcast(groups.frame), list(GROUP), "left_anti")
            # Columns are added as time goes by: rows of before have nothing in them.
            rows = there.unionByName(rows, allowMissingColumns=True)
        added = self._transaction.writeFiles(in_order(rows, are_many=are_many)._jdf)  # noqa: SLF001 - see jvm.py.
        if not touched and not added.size():
            return
        removed = self._sequence([one.remove() for one in touched])
        self._transaction.commit(added.concat(removed), self._operation())

    def _touched(self, groups: Groups) -> list[Any]:
        """The files that may have rows of these groups, and small ones if there are many."""
        names = None if groups.listed is None else {group for _, group in groups.listed}
        chosen, small = [], []
        # What the transaction itself lists has no statistics any more.
        for file in self._transaction.snapshot().allFiles().collect():
            stats = json.loads(file.stats() or "{}")
            if names is None or _may_have(stats, names):
                chosen.append(file)
            elif stats.get("numRecords", 0) < FILE_ROWS // 2:
                small.append(file)
        return chosen + small if len(small) > SMALL_FILES_MAX else chosen

    def _rows_of(self, files: list[Any]) -> DataFrame:
        nothing = self._java.scala.Option.empty()
        snapshot = self._transaction.snapshot()
        frame = self._log.createDataFrame(snapshot, self._sequence(files), False, nothing)
        return DataFrame(frame, self._spark)

    def _sequence(self, items: list[Any]) -> Any:  # noqa: ANN401 - of the JVM.
        buffer = self._java.java.util.ArrayList()
        for item in items:
            buffer.add(item)
        converters = self._java.scala.jdk.javaapi.CollectionConverters
        return converters.asScala(buffer).toSeq()

    def _operation(self) -> object:
        """What the table's own history calls it."""
        nothing = self._java.scala.Option.empty()
        mode = self._java.org.apache.spark.sql.SaveMode.Overwrite
        delta = self._java.org.apache.spark.sql.delta
        return getattr(delta, "DeltaOperations$Write")(mode, *[nothing] * 8)


def in_order(rows: DataFrame, *, are_many: bool) -> DataFrame:
    """The rows by group, as files are to have them; those that `are_many` are written by several
    tasks, and looked at twice for it.
    """
    spread = rows.repartitionByRange(*GROUP) if are_many else rows.coalesce(1)
    return spread.sortWithinPartitions(*GROUP)


def _may_have(stats: dict[str, Any], names: Collection[str]) -> bool:
    """Delta shortens long texts in a way that keeps them below and above what they stand for."""
    try:
        first, last = stats["minValues"]["group"], stats["maxValues"]["group"]
    except KeyError:
        return True
    return any(first <= name <= last for name in names)
