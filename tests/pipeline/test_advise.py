"""Advice by way of Spark: the same however the work is cut, for all groups that have a history."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kohort.insight.advisor.computation import compute_advice
from kohort.insight.advisor.grid import grid
from kohort.insight.errors import ReportedError, UsageError
from kohort.insight.tables.advice import ADVICE
from kohort.insight.tables.history import REBALANCES
from kohort.pipeline.advising import ERROR, EVENTS, advice_of, messages
from kohort.pipeline.arrow import spark_schema
from kohort.pipeline.delta.lake import DeltaLake
from kohort.pipeline.jobs import advise as job
from kohort.pipeline.rebalances.findings import Findings, Thresholds
from tests.pipeline.conftest import Pipeline
from tests.pipeline.events import records, take
from tests.pipeline.lakes import lake_of
from tests.support.brokers.kohort_server import KohortServer

S = 1_000
KNOWN = {"session_timeout_ms": 45 * S}
"""What these histories do not say, and static membership rests on."""
Json = dict[str, Any]


def deploy(group: str, members: int) -> list[Json]:
    """All members come, and are restarted one after the other."""
    records: list[Json] = []

    def add(kind: str, member_id: str, at_ms: int) -> None:
        client_id = member_id.rpartition("-")[0]
        trigger = {"kind": kind, "at_ms": at_ms, "member_id": member_id, "client_id": client_id}
        records.append(
            {
                "schema": 1,
                "kind": "rebalance",
                "group": group,
                "sequence": len(records) + 1,
                "started_at_ms": at_ms,
                "trigger": trigger,
                "outcome": "stable",
            }
        )

    for number in range(members):
        add("member_added", f"{group}{number}-1", number * 20 * S)
    for number in range(members):
        add("member_left", f"{group}{number}-1", 600 * S + number * 60 * S)
        add("member_added", f"{group}{number}-2", 603 * S + number * 60 * S)
    return records


def events_of(spark: SparkSession, records: list[Json]) -> DataFrame:
    rows = [("c", record["group"], json.dumps(record)) for record in records]
    return spark.createDataFrame(rows, EVENTS)


def worked_out(spark: SparkSession, records: list[Json], days: int = 35) -> list[Json]:
    advice = advice_of(events_of(spark, records), days=days, known=KNOWN)
    assert advice.columns == [*ADVICE.names, ERROR]
    rows = advice.drop(ERROR).toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row["group"], row["ordinal"]))


@pytest.fixture(scope="module")
def advised(spark: SparkSession) -> list[Json]:
    """Advice for the groups a and b, worked out once: a replay of all settings costs seconds."""
    return worked_out(spark, deploy("a", 2) + deploy("b", 3))


def check_rows(ours: list[Json]) -> None:
    """They are those of the advisor for the group a."""
    told = compute_advice("a", deploy("a", 2), known=KNOWN)
    assert told is not None
    assert len(ours) == len(grid(told.trace))
    assert [row["ordinal"] for row in ours if row["is_recorded"]] == [0]
    assert sum(row["is_on_front"] for row in ours) == len(told.front)
    (best,) = [row for row in ours if row["is_best"]]
    assert told.best is not None
    assert (best["rebalances"], best["stopped_ms"]) == (told.best.rebalances, told.best.stopped_ms)
    assert best["static"] is told.best.setting.static
    assert any(row["static"] for row in ours if row["is_on_front"])


@pytest.mark.long
def test_rows_of_several_groups_are_those_of_the_advisor(advised: list[Json]) -> None:
    check_rows([row for row in advised if row["group"] == "a"])


@pytest.mark.long
def test_a_group_that_cannot_be_read_is_told_and_stops_no_other(spark: SparkSession) -> None:
    broken = [{"group": "x", "kind": "rebalance", "sequence": 1, "trigger": "?"}]
    only_avoided = [{"group": "y", "kind": "avoided", "sequence": 1, "at_ms": 0}]
    events = events_of(spark, deploy("a", 2) + broken + only_avoided)
    rows = advice_of(events, days=35, known={}).select("group", ERROR).distinct().collect()
    told = {row["group"]: row[ERROR] for row in rows}
    assert set(told) == {"a", "x", "y"}
    assert told["a"] is None
    assert told["x"].startswith("not a history")
    assert told["y"] == "no rebalance in the history"


@pytest.mark.long
def test_what_is_older_than_the_days_asked_for_is_left_out(spark: SparkSession) -> None:
    old = deploy("a", 2)
    month_ms = 30 * 24 * 3600 * S
    new = [
        record
        | {
            "sequence": record["sequence"] + 100,
            "started_at_ms": record["started_at_ms"] + month_ms,
            "trigger": record["trigger"] | {"at_ms": record["trigger"]["at_ms"] + month_ms},
        }
        for record in old
    ]
    rows = worked_out(spark, old + new, days=7)
    assert {row["history_rebalances"] for row in rows} == {len(new)}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_advice_is_renewed_for_its_groups_and_stays_for_others(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    lake = lake_of(spark, tmp_path / "lake", kind)
    for name in "abb":
        job.advise(lake, events_of(spark, deploy(name, 2)), days=35, known={})

    counts = {
        row["group"]: row["count"] for row in lake.read("advice").groupBy("group").count().collect()
    }
    assert set(counts) == {"a", "b"}
    assert counts["a"] == counts["b"]


@pytest.mark.long
def test_advice_of_an_earlier_version_stays_beside_what_has_a_column_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = DeltaLake(spark, str(tmp_path / "lake"))
    job.advise(lake, events_of(spark, deploy("a", 2)), days=35, known={})
    former = lake.read("advice").drop("stopped_spread_ms").write.format("delta").mode("overwrite")
    former.option("overwriteSchema", "true").save(lake.path("advice"))
    assert "stopped_spread_ms" not in lake.read("advice").columns
    job.advise(lake, events_of(spark, deploy("b", 2)), days=35, known={})

    table = lake.read("advice")
    assert set(table.columns) == set(ADVICE.names)
    lacking = table.groupBy("group").agg(f.count("stopped_spread_ms"), f.count("*"))
    found = {row[0]: tuple(row)[1:] for row in lacking.collect()}
    count = found["b"][1]
    assert found == {"a": (0, count), "b": (count, count)}


@pytest.mark.long
def test_a_message_for_a_topic_has_a_key_and_an_id_that_repetitions_share(
    spark: SparkSession, advised: list[Json]
) -> None:
    rows = spark.createDataFrame(advised, spark_schema(ADVICE)).where("`group` = 'a'")

    (first,), (second,) = (messages(rows.repartition(n)).collect() for n in (1, 3))

    assert first == second
    assert first["key"] == "c/a"
    value = json.loads(first["value"])
    assert value["schema"] == 1
    assert value["advice_id"] == "c/a/6"
    assert value["recorded"]["rebalances"] == value["history_rebalances"] == 6
    assert [choice for choice in value["choices"] if choice["is_best"]]
    assert value["choices"][0]["setting"].keys() >= {"static", "session_timeout_ms", "cooperative"}


def test_the_command_reads_a_file_writes_table_and_topic_and_says_it_in_words(
    pipeline: Pipeline,
    spark: SparkSession,
    kohort: KohortServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    history = tmp_path / "history.jsonl"
    lines = [json.dumps(record) for record in deploy("a", 2)]
    history.write_text("\n".join([*lines, '{"no": "event"}', ""]))
    lake = tmp_path / "lake"
    to_topic = ("--topic", job.TOPIC, "--bootstrap-server", kohort.bootstrap)
    known = [f"{name}={value}" for name, value in KNOWN.items()]

    assert pipeline("advise", "--from", history, "--lake", lake, *to_topic, "--known", *known) == 0

    out, err = capsys.readouterr()
    assert "group a\n" in out
    assert "\n  * " in out
    assert " static membership" in out
    assert "not known: the members' partitions" in out
    assert "skipped 1 line without a history event" in err
    table = DeltaLake(spark, str(lake)).read("advice").orderBy("ordinal")
    check_rows(table.toArrow().to_pylist())
    (sent,) = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kohort.bootstrap)
        .option("subscribe", job.TOPIC)
        .load()
        .collect()
    )
    assert bytes(sent["key"]) == b"/a"
    value = json.loads(sent["value"])
    assert value["recorded"]["rebalances"] == len(lines)
    assert [choice for choice in value["choices"] if choice["is_best"]]


def test_without_a_history_it_says_which_table_is_missing(
    pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pipeline("advise", "--topic", "", "--lake", tmp_path) == 1
    assert f"no table {REBALANCES.name}" in capsys.readouterr().err


def test_without_a_rebalance_it_says_so(spark: SparkSession, tmp_path: Path) -> None:
    events = events_of(spark, [{"group": "g", "kind": "avoided", "sequence": 1, "at_ms": 0}])
    with pytest.raises(ReportedError, match="no rebalance"):
        job.advise(DeltaLake(spark, str(tmp_path)), events, days=35, known={})


@pytest.mark.long
def test_the_report_of_a_lake_is_one_page(
    pipeline: Pipeline, spark: SparkSession, tmp_path: Path, advised: list[Json]
) -> None:
    lake = DeltaLake(spark, str(tmp_path / "lake"))
    values = [json.dumps(record).encode() for record in deploy("a", 2)]
    take(lake, [record._replace(cluster_id="c") for record in records(values)])
    Findings(lake, Thresholds()).renew()
    advice = spark.createDataFrame(advised, spark_schema(ADVICE))
    lake.append_once(advice, ADVICE.name, app_id="a", batch_id=0)

    output = tmp_path / "page.html"
    assert pipeline("report", "--lake", tmp_path / "lake", "--output", output) == 0

    text = output.read_text(encoding="utf-8")
    assert "Why a rebalanced, and what to change" in text
    assert "static membership" in text.lower()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "page.html"]


@pytest.mark.parametrize("text", ["session_timeout_ms", "static=1", "session_timeout_ms=-4"])
def test_what_is_known_has_to_be_a_duration(text: str) -> None:
    with pytest.raises(UsageError, match="--known"):
        job.parse_known([text])


def test_what_is_known_may_be_written_as_kafka_does() -> None:
    assert job.parse_known(["session.timeout.ms=9000"]) == {"session_timeout_ms": 9_000}
