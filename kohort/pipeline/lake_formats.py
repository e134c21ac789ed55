"""Opens a lake of the requested format."""

from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from kohort.insight.errors import UsageError
from kohort.pipeline.catalog import Namespace
from kohort.pipeline.delta.lake import DeltaLake
from kohort.pipeline.errors import UnavailableError
from kohort.pipeline.lake import Lake

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"


def open_lake(
    spark: SparkSession, root: str, kind: str = DELTA, namespace: Namespace | None = None
) -> Lake:
    """Return the lake at this root, or in this namespace of a catalog, without accessing it.

    Raises:
        UsageError: the format is unknown.
        UnavailableError: a package for the format is not installed.
    """
    if kind == DELTA:
        return DeltaLake(spark, absolute(root), namespace)
    if kind != ICEBERG:
        raise UsageError(f"the format of a lake is {DELTA} or {ICEBERG}, not {kind}")
    try:
        from kohort.pipeline.iceberg.lake import IcebergLake  # noqa: PLC0415 - an optional dependency.
    except ImportError as error:
        raise UnavailableError(
            f"--format iceberg needs PyIceberg, pip install 'kohort[iceberg]': {error}"
        ) from error
    return IcebergLake(spark, absolute(root), namespace)


def absolute(place: str) -> str:
    """Return an absolute path, which is the same for every process; URLs are unchanged."""
    return place if "://" in place else str(Path(place).absolute())
