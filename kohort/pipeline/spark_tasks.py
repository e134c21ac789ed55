"""Pieces of work on all cores of a session, by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

TASKS_PER_CORE: Final = 4
"""Tasks for each core: several, so that pieces that take long and others even out."""

_SCHEMA: Final = pa.schema([("place", pa.int64()), ("piece", pa.binary())])


def run_on_cores(
    spark: SparkSession, function: Callable[[bytes], bytes], pieces: Sequence[bytes]
) -> list[bytes]:
    """What the function makes of each, in their order.

    The function is one of a module, which executors have to have.

    Raises:
        PySparkException, Py4JError: it failed, wherever it was.
    """
    if not pieces:
        return []
    tasks = min(len(pieces), spark.sparkContext.defaultParallelism * TASKS_PER_CORE)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done = [function(one) for one in batch.column(1).to_pylist()]
            yield pa.record_batch([batch.column(0), pa.array(done, pa.binary())], schema=_SCHEMA)

    given = pa.table([pa.array(range(len(pieces))), pa.array(pieces, pa.binary())], schema=_SCHEMA)
    frame = spark.createDataFrame(given).repartition(tasks)
    done = frame.mapInArrow(work, "place bigint, piece binary").toArrow()
    found = dict(zip(done["place"].to_pylist(), done["piece"].to_pylist(), strict=True))
    return [found[place] for place in range(len(pieces))]
