"""The pipeline for notebooks, or programs with their own session.

::

    from kohort.pipeline import advise, findings, history

    events = history(spark, "week.jsonl.gz")
    findings(spark, events)["slow_members"].orderBy("waited_for_total_ms", ascending=False).show()
    advise(spark, events).where("is_best").select("group", "text").show(truncate=False)

Nothing is written. A lake is read in place; files are read into the driver.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, tzinfo
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from kohort.insight.advisor.tasks import Key
from kohort.insight.analysis.finder import Thresholds
from kohort.insight.analysis.rows import read_histories
from kohort.insight.errors import ReportedError, UsageError
from kohort.insight.event_rows import Event
from kohort.pipeline.advising import Advisor
from kohort.pipeline.catalog import Namespace
from kohort.pipeline.events import Read, read, typed
from kohort.pipeline.findings_in_arrow import tables_of
from kohort.pipeline.lake_formats import DELTA, open_lake
from kohort.pipeline.rebalances import files
from kohort.pipeline.schemas import AVOIDED, FINDINGS, REBALANCES
from kohort.pipeline.schemas.advice import ADVICE
from kohort.pipeline.schemas.columns import TEXT

__all__ = ["Thresholds", "advise", "findings", "history"]

EVENTS: Final = StructType(
    [StructField("cluster_id", TEXT), StructField("group", TEXT), StructField("event", TEXT)]
)
"""The columns of a history."""


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
            may be
            omitted.
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
        lake_tables = open_lake(spark, lake or "", format, _namespace(catalog))
        rebalances = lake_tables.read(REBALANCES.name).select(*EVENTS.names)
        return rebalances.unionByName(lake_tables.read(AVOIDED.name).select(*EVENTS.names))
    parsed_records = [
        record
        for chunk in files.chunks(paths, timezone)
        for record in map(read, chunk.records(cluster_id))
        if isinstance(record, Read)
    ]
    first: dict[tuple[str, str, int], Read] = {}
    for record in parsed_records:
        # An event reported before its end is reported again at its end.
        if record.event.get("outcome") != "running":
            first.setdefault(record.key, record)
    rows = [(*key[:2], record.text) for key, record in first.items()]
    return spark.createDataFrame(rows, EVENTS)


def findings(
    spark: SparkSession, events: DataFrame, thresholds: Thresholds | None = None
) -> dict[str, DataFrame]:
    """Return the findings of events: a frame for each table of docs/pipeline-tables.md, by name.

    They are computed in the driver; if a lake already has the tables, `spark.read` is faster.
    """
    by_cluster: dict[str, list[Event]] = {}
    for cluster_id, text in _collected(events):
        by_cluster.setdefault(cluster_id, []).append(typed(text))
    groups = [
        group
        for cluster_id in sorted(by_cluster)
        for group in read_histories(cluster_id, by_cluster[cluster_id])
    ]
    rows_by_table = tables_of(groups, thresholds or Thresholds())
    return {
        table.name: spark.createDataFrame(rows_by_table[table.name], table.schema)
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

    The replays run on the executors, which need Kohort (`kohort pipeline py-files`). `known` are
    settings that are known to have been in force, such as ``{"session_timeout_ms": 45_000}``.
    """
    by_group: dict[Key, list[str]] = {}
    for row in events.select("cluster_id", "group", "event").toLocalIterator():
        by_group.setdefault((row["cluster_id"], row["group"]), []).append(row["event"])
    rows = Advisor(spark, days=days, known=known or {}).rows(by_group)
    return spark.createDataFrame(rows, ADVICE.schema)


def _namespace(catalog: str | None) -> Namespace | None:
    try:
        return None if catalog is None else Namespace.parse(catalog)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _collected(events: DataFrame) -> Iterator[tuple[str, str]]:
    for row in events.select("cluster_id", "event").toLocalIterator():
        yield row["cluster_id"], row["event"]
