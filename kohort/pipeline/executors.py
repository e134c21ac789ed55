"""Runs functions on executors, over the partitions of a DataFrame; the driver gets the results.

The functions are Kohort's own, so executors must be able to import them. A function that raises
ReportedError ends the job with its message.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias
from zlib import crc32

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kohort.insight.errors import ReportedError

Batches: TypeAlias = Iterator[pa.RecordBatch]

_RESULT: Final = pa.schema([("result", pa.binary())])


SLICES: Final = 64
"""Number of slices into which the groups are divided, and so the maximum number of tasks that write
at a time."""


def slice_of(cluster_id: str, group: str) -> int:
    """Return the number of a group's slice; all groups of a slice are written by the same task."""
    return crc32(f"{cluster_id}/{group}".encode(errors="replace")) % SLICES


def results_of(frame: DataFrame, function: Callable[[Batches], Iterable[Any]]) -> list[Any]:
    """Call the function with the rows of each partition; return what the calls yield.

    Raises:
        PySparkException, Py4JError: a call failed.
        ReportedError: a call raised it.
    """

    def work(batches: Batches) -> Batches:
        try:
            for result in function(batches):
                yield _pickled(result)
        except ReportedError as error:
            yield _pickled(error)

    rows = frame.mapInArrow(work, "result binary").toArrow()
    results = [pickle.loads(row) for row in rows["result"].to_pylist()]  # noqa: S301 - of `work`.
    for result in results:
        if isinstance(result, ReportedError):
            raise result
    return results


def items(spark: SparkSession, given: Iterable[Any]) -> DataFrame:
    """Return a DataFrame of pickled objects, spread over all cores; `objects` unpickles them."""
    return spark.createDataFrame(
        pa.table([pa.array(map(pickle.dumps, given), pa.binary())], schema=_RESULT)
    )


def objects(batches: Batches) -> Iterator[Any]:
    for batch in batches:
        for item in batch.column(0).to_pylist():
            yield pickle.loads(item)  # noqa: S301 - of `items`, in the driver.


def _pickled(result: object) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pickle.dumps(result)], pa.binary())], schema=_RESULT)
