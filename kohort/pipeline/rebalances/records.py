"""Frames of records: of the history's topic, or of lines of files."""

from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from kohort.insight.parsing import group_of
from kohort.pipeline.executors import Batches, slice_of

COLUMNS: Final = pa.schema(
    [
        # The place of a file among others, 0 for a topic.
        ("file", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
DDL: Final = (
    "file int, topic string, partition int, offset bigint, ms bigint, key binary, value binary"
)


def routed(records: DataFrame, cluster_id: str) -> DataFrame:
    """Return the records with a column `slice`, which is the same for all records of a group."""
    return records.mapInArrow(partial(_routed, cluster_id), f"{DDL}, slice int")


def _routed(cluster_id: str, batches: Batches) -> Batches:
    for batch in batches:
        slices = [slice_of(cluster_id, group_of(value)) for value in batch["value"].to_pylist()]
        yield batch.append_column("slice", pa.array(slices, pa.int32()))
