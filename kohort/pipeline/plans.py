"""How Spark works out its queries: other ways suit ten rows than suit a million.

A batch of a few events is planned, and code is compiled for it, for longer than it runs. What was
said from outside (`--conf`, spark-submit) stays.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

FEW_EVENTS: Final = 2_000
"""Events of which all rows together are few."""

_FEW: Final = {
    # One task does them all, so there is nothing to be found out about how many it should be.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # Code for whole stages is for rows by the million.
    "spark.sql.codegen.wholeStage": "false",
}


def are_few(events: int | None) -> bool:
    """Whether so many are few; None: nobody knows."""
    return events is not None and events <= FEW_EVENTS


@contextmanager
def fit_for(spark: SparkSession, events: int | None) -> Iterator[None]:
    """Queries of so many events until the end of the context; None: nobody knows, so as always."""
    with settings(spark, _FEW if are_few(events) else {}):
        yield


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session until the end of the context, but for those from outside."""
    given = spark.sparkContext.getConf()
    chosen = {name: value for name, value in wanted.items() if not given.contains(name)}
    before = {name: spark.conf.get(name) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, old or "")
