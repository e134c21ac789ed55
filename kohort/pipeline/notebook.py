"""The pipeline for notebooks, or programs with their own session.

::

    from kohort.pipeline import advise, findings, history

    events = history(spark, "week.jsonl.gz")
    findings(spark, events)["slow_members"].orderBy("waited_for_total_ms", ascending=False).show()
    advise(spark, events).where("is_best").select("group", "text").show(truncate=False)

Nothing is written. A lake is read in place; executors do the work, and must be able to read
the files.
"""

from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kohort.insight.analysis.finder import Thresholds
from kohort.insight.analysis.rows import read_histories
from kohort.insight.errors import ReportedError, UsageError
from kohort.insight.parsing import typed
from kohort.insight.tables.findings import FINDINGS
from kohort.pipeline.advising import ERROR, GROUP, advice_of, by_group, events_in_lake
from kohort.pipeline.arrow import spark_schema
from kohort.pipeline.catalog import Namespace
from kohort.pipeline.executors import Batches
from kohort.pipeline.findings_in_arrow import (
    COMPUTED,
    COMPUTED_DDL,
    packed,
    tables_in,
    tables_of,
)
from kohort.pipeline.lake_formats import DELTA, open_lake
from kohort.pipeline.rebalances import files

__all__ = ["Thresholds", "advise", "findings", "history"]


def history(
    spark: SparkSession,
    *paths: str,
    lake: str | None = None,
    format: str = DELTA,  # noqa: A002 - like `--format` and Spark's readers.
    catalog: str | None = None,
    cluster_id: str = "file",
    timezone: tzinfo = UTC,
) -> DataFrame:
    """Return the events of a history: cluster_id, group, event; the latter is JSON.

    Args:
        paths: histories as JSON lines, or logs of Kafka brokers, oldest first; .gz is decompressed.
        lake: instead of paths, the root of a lake with the tables of `kohort pipeline rebalances`.
        format: the format of the lake's tables, `delta` or `iceberg`.
        catalog: the CATALOG.NAMESPACE of Iceberg tables, as PyIceberg is configured; then `lake`
            may be omitted.
        cluster_id: cluster id for files.
        timezone: time zone of logs whose times have no offset.

    Raises:
        ReportedError: neither paths nor a lake is given, or both; or the history does not exist.
        UsageError: a file cannot be read; format or catalog is invalid.
    """
    in_lake = lake is not None or catalog is not None
    if in_lake == bool(paths):
        raise ReportedError("give either files or a lake")
    if in_lake:
        if lake is None and format == DELTA:
            raise UsageError("Delta tables need lake=")
        return events_in_lake(open_lake(spark, lake or "", format, _namespace(catalog)))
    files.check(paths)
    records = files.read(spark, [str(Path(path).absolute()) for path in paths], timezone)
    return files.events(records, cluster_id).where(f.col("group").isNotNull())


def findings(
    spark: SparkSession, events: DataFrame, thresholds: Thresholds | None = None
) -> dict[str, DataFrame]:
    """Return the findings: by name, a DataFrame for each table of docs/pipeline-tables.md.

    Executors compute all findings when the first DataFrame is used, and keep them for the others.
    """
    del spark  # Unused: the session is that of `events`. Programs may still pass it.
    limits = thresholds or Thresholds()

    def work(rows: pa.Table) -> pa.Table:
        events = [typed(text) for text in rows["event"].to_pylist()]
        tables = tables_of(read_histories(rows["cluster_id"][0].as_py(), events), limits)
        return pa.Table.from_batches(packed(tables), COMPUTED)

    computed = by_group(events).groupBy(*GROUP).applyInArrow(work, COMPUTED_DDL).persist()
    return {
        table.name: computed.where(f.col("table") == table.name).mapInArrow(
            _unpacked, spark_schema(table)
        )
        for table in FINDINGS
    }


def advise(
    spark: SparkSession,
    events: DataFrame,
    *,
    days: int = 35,
    known: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return rows of the table `advice`: the groups' last `days` replayed under other settings.

    The replays run on executors, which need Kohort (`kohort pipeline py-files`). `known` are
    settings that are known to have been in force, such as ``{"session_timeout_ms": 45_000}``.
    """
    del spark  # Unused, as in `findings`.
    advice = advice_of(events, days=days, known=known or {}).persist()
    return advice.where(f.col(ERROR).isNull()).drop(ERROR)


def _unpacked(batches: Batches) -> Batches:
    for _, rows in tables_in(batches):
        yield from rows.to_batches()


def _namespace(catalog: str | None) -> Namespace | None:
    try:
        return None if catalog is None else Namespace.parse(catalog)
    except ValueError as error:
        raise UsageError(str(error)) from error
