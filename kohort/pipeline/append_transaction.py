"""Appends that are right only if the table has not changed since it was read.

An append of Delta's own conflicts with nothing: two runs that find the same event missing would
both add it. Here the transaction begins before the table is read, and has read all of it as far as
Delta knows; the second commit fails as a conflict and adds nothing.
"""

from pyspark.sql import DataFrame, SparkSession

from kohort.pipeline import jvm


class AppendTransaction:
    """A transaction of Delta's that waits for its rows. Raises what py4j raises."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """What is read of the table after this may decide what is added."""
        self._java = jvm.of(spark)
        self._transaction = jvm.delta_log(spark, path).startTransaction()
        self._transaction.readWholeTable()

    def append(self, frame: DataFrame) -> None:
        """Once. The rows' columns are the table's or some of them."""
        files = self._transaction.writeFiles(frame._jdf)  # noqa: SLF001 - see jvm.py.
        self._transaction.commit(files, self._operation())

    def _operation(self) -> object:
        """What the table's own history calls it."""
        nothing = self._java.scala.Option.empty()
        mode = self._java.org.apache.spark.sql.SaveMode.Append
        delta = self._java.org.apache.spark.sql.delta
        return getattr(delta, "DeltaOperations$Write")(mode, *[nothing] * 8)
