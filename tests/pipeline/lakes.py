"""Lakes of each format, for tests that are about all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.processes import java_env

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.pipeline.lake import Lake


def lake_of(spark: SparkSession, root: Path, kind: str) -> Lake:
    if kind == "delta":
        from kohort.pipeline.delta.lake import DeltaLake  # noqa: PLC0415 - an extra.

        return DeltaLake(spark, str(root))
    try:
        from kohort.pipeline.iceberg.lake import IcebergLake  # noqa: PLC0415 - an extra.
    except ImportError:
        java_env.missing("PyIceberg is not installed: pip install '.[dev-long]'")
    return IcebergLake(spark, str(root))
