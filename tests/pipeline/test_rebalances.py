"""`kohort pipeline rebalances` beside a real broker with real groups, and over files."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.testing import assertDataFrameEqual

from kohort.groups.history.model import HistoryRecord
from tests.pipeline.churn import Churn, Record
from tests.pipeline.conftest import Pipeline
from tests.pipeline.events import CLUSTER, avoided, line, member, rebalance, records, take
from tests.pipeline.frames import assert_rows
from tests.pipeline.topics import Topics
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.groups.raw_members import RawMember, share
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WEEK = Path(__file__).parents[2] / "examples" / "rebalance-week" / "week.jsonl.gz"
LOG = Path(__file__).parents[1] / "unit/insight/broker_log/real/kafka-3.9.log"


class Job:
    """Runs the job into a lake of the test's own, and reads what it has made."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, lake: Path) -> None:
        self.lake = lake
        self._pipeline, self._spark = pipeline, spark

    def __call__(self, *arguments: object) -> int:
        return self._pipeline("rebalances", "--available-now", *arguments, "--lake", self.lake)

    def table(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(str(self.lake / name))

    def events(self) -> list[tuple[str, int, Record]]:
        """Group, sequence and JSON of all that is in the tables."""
        columns = ("group", "sequence", "event")
        both = (
            self.table("rebalances").select(*columns).union(self.table("avoided").select(*columns))
        )
        return sorted(
            ((row["group"], row["sequence"], json.loads(row["event"])) for row in both.collect()),
            key=lambda event: event[:2],
        )


@pytest.fixture
def job(pipeline: Pipeline, spark: SparkSession, tmp_path: Path) -> Job:
    return Job(pipeline, spark, tmp_path / "lake")


@pytest.fixture(scope="module")
def churn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Churn]:
    http_port = free_port()
    overrides = {"kohort.metrics.port": str(http_port)}
    with KohortServer(tmp_path_factory.mktemp("churn"), overrides=overrides) as server:
        yield Churn(server, http_port)


@pytest.mark.timeout(1_200)
def test_every_rebalance_of_real_groups_is_there_once_and_says_what_why_says(
    churn: Churn, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = ["static", "cooperative"]
    churn.static("static")
    churn.cooperative("cooperative")
    said = {group: churn.why(group, capsys) for group in groups}
    assert job("--bootstrap-server", churn.server.bootstrap) == 0
    # More of them, into the same tables.
    groups.append("eager")
    churn.eager("eager")
    said["eager"] = churn.why("eager", capsys)
    assert job("--bootstrap-server", churn.server.bootstrap) == 0

    # Other tests have groups on this broker as well.
    events = [event for event in job.events() if event[0] in groups]
    assert [event[:2] for event in events] == sorted(
        (group, one["sequence"]) for group in groups for one in said[group]
    )
    for group, sequence, event in events:
        (one,) = (one for one in said[group] if one["sequence"] == sequence)
        # The broker's pages say it in words as well.
        assert event == {name: one[name] for name in event}
    assert len(said["eager"]) >= 4
    assert len(said["cooperative"]) >= 4
    assert {one["kind"] for one in said["static"]} == {"rebalance", "avoided"}
    assert_numbers_agree(job, said)
    assert_partitions_agree(job)
    assert not job.table("quarantine").count()
    assert not job.table("sequence_gaps").count()
    assert "findings of 1 group renewed" in capsys.readouterr().err


@pytest.mark.long
def test_a_large_batch_is_written_by_several_tasks_each_event_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kohort.insight.tables.findings import FINDINGS  # noqa: PLC0415
    from kohort.insight.tables.history import HISTORY  # noqa: PLC0415
    from kohort.pipeline.delta.lake import DeltaLake  # noqa: PLC0415
    from kohort.pipeline.rebalances import files, findings, ingest  # noqa: PLC0415

    expected = DeltaLake(spark, str(tmp_path / "expected"))
    values = gzip.decompress(WEEK.read_bytes()).splitlines()
    take(expected, records([*values, b"{", values[0]]))
    findings.Findings(expected, findings.Thresholds()).renew()

    monkeypatch.setattr(ingest, "TASK_RECORDS", 50)
    monkeypatch.setattr(findings, "ROWS_AT_LEAST", 50)
    divided = DeltaLake(spark, str(tmp_path / "divided"))
    (tmp_path / "more").write_bytes(b"{\n" + values[0])
    lines = files.read(spark, [str(WEEK), str(tmp_path / "more")], UTC)
    tally, again = (ingest.Ingest(divided).write(lines, CLUSTER) for _ in range(2))
    assert (tally.records - tally.quarantined, tally.quarantined) == (len(values) + 1, 1)
    assert again == tally
    assert len(tally.groups) == 3
    renewing = findings.Findings(divided, findings.Thresholds())
    assert renewing.renew(tally.groups) == 3
    assert renewing.renew() == 0
    for table in (*HISTORY, *FINDINGS):
        source = ("topic", "offset", "key")
        rows, those = (lake.read(table.name).drop(*source) for lake in (divided, expected))
        assertDataFrameEqual(rows, those)


def assert_numbers_agree(job: Job, said: dict[str, list[Record]]) -> None:
    rows = {(row["group"], row["sequence"]): row for row in job.table("rebalances").collect()}
    members = job.table("members").collect()
    for group, told_of in said.items():
        rebalances = [one for one in told_of if one["kind"] == "rebalance"]
        for one in rebalances:
            row = rows[group, one["sequence"]]
            assert row["stopped_total_ms"] == one["stopped"]["total_ms"]
            shares = one["partitions"]
            assert row["partitions_moved"] == (shares["moved"] if shares["known"] else None)
            assert row["waited_ms"] == one["waited_for"]["ms"]
            assert row["trigger_kind"] == one["trigger"]["kind"]
            told = [(row["member_id"], row["stopped_ms"], gained_of(row)) for row in one["members"]]
            mine = [
                (row["member_id"], row["stopped_ms"], row["gained"])
                for row in sorted(members, key=lambda row: row["ordinal"])
                if (row["group"], row["sequence"]) == (group, one["sequence"])
            ]
            assert mine == told
        (summary,) = job.table("groups").where(f"`group` = '{group}'").collect()
        assert summary["rebalance_count"] == len(rebalances)
        assert summary["event_count"] == len(told_of)
        assert summary["stopped_total_ms"] == sum(one["stopped"]["total_ms"] for one in rebalances)
        assert summary["stopped_longest_ms"] == max(
            one["stopped"]["longest_ms"] for one in rebalances
        )


def gained_of(member_said: Record) -> list[str] | None:
    """A table has nothing where the broker says that it does not know."""
    shares = member_said["partitions"]
    return shares["gained"] if shares["known"] else None


def assert_partitions_agree(job: Job) -> None:
    """Check the owners at the end, and that no member ever had what another one had."""
    sets = job.table("partitions").where("topic = 'orders'")
    rows = sets.selectExpr("*", "explode(partitions) AS partition").collect()
    open_rows = [row for row in rows if row["until_at"] is None]
    assert {row["state"] for row in open_rows} == {"unavailable"}
    held = {(row["group"], row["partition"]) for row in open_rows}
    assert held >= {("static", 3), ("eager", 0), ("eager", 5)}
    assert {partition for group, partition in held if group == "cooperative"} == set(range(6))
    moved = [row for row in rows if row["group"] == "cooperative" and row["state"] == "owned"]
    # What the first one kept when the second one came, it never stopped reading.
    assert sum(row["ended_by"] == "given_up" for row in moved) == 3
    timeline: dict[tuple[str, int], Any] = {}
    for row in sorted(rows, key=lambda row: row["from_at"]):
        key = (row["group"], row["partition"])
        if key in timeline:
            assert timeline[key] == row["from_at"], key
        timeline[key] = row["until_at"]


def written(path: Path, *records: HistoryRecord | bytes) -> Path:
    lines = [one if isinstance(one, bytes) else line(one) for one in records]
    path.write_bytes(b"".join(one + b"\n" for one in lines))
    return path


@pytest.mark.timeout(1_200)
@pytest.mark.long
def test_files_are_taken_once_and_what_is_odd_is_kept_apart(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = rebalance(1, 0, member("a-1", join=0, sync=10, fate="new", gained=["t-0"]))
    second = avoided(2, 10)
    fifth = rebalance(
        5, 20, member("a-1", fate="left", fate_ms=0, given_up=["t-0"]), outcome="empty"
    )
    running = rebalance(4, 15, outcome="running")
    later_schema = line(first).replace(b'"schema": 1', b'"schema": 2')
    path = written(
        tmp_path / "exported.jsonl",
        first,
        b'{"schema": 1, "kind": "reb',
        b"",
        second,
        running,
        later_schema,
        first,
        fifth,
        replace(second, at_ms=second.at_ms + 5),
    )
    for _ in range(2):
        assert job("--from", path, "--cluster-id", "exported") == 0
    assert [event[:2] for event in job.events()] == [("billing", 1), ("billing", 2), ("billing", 5)]
    quarantine = job.table("quarantine")
    expected = [
        (1, "not_json", "exported.jsonl", 0),
        (5, "schema_version", "exported.jsonl", 0),
        (8, "sequence_taken", "exported.jsonl", 0),
    ]
    assert_rows(quarantine.select("offset", "reason", "topic", "partition"), expected)
    broken = b'{"schema": 1, "kind": "reb'
    assert_rows(quarantine.where("offset = 1").select("value"), [(broken,)])
    gaps = job.table("sequence_gaps").select("from_sequence", "to_sequence", "running_count")
    assert_rows(gaps, [(3, 4, 1)])
    assert_rows(job.table("groups").select("cluster_id"), [("exported",)])
    assert "3 in quarantine" in capsys.readouterr().err


@pytest.mark.timeout(1_200)
@pytest.mark.long
def test_the_log_of_a_kafka_broker_fills_the_same_tables(job: Job) -> None:
    assert job("--from", LOG, "--cluster-id", "stock") == 0
    counts = job.table("groups").select(
        "group", "rebalance_count", "avoided_count", "missing_count"
    )
    expected = [("shop dynamic group", 8, 0, 0), ("shop static", 4, 1, 0), ("shop slow", 5, 0, 0)]
    assert_rows(counts, expected)
    storms = job.table("storms").where("`group` = 'shop dynamic group'")
    assert_rows(storms.select("rebalance_count"), [(8,)])
    # A log does not say who had what, and so nothing is said of it.
    assert not job.table("partitions").count()
    assert not job.table("quarantine").count()
    assert_rows(job.table("slow_members").select("group", "missed_count"), [("shop slow", 1)])


@pytest.mark.long
def test_a_checkpoint_of_another_job_is_refused(
    churn: Churn, job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = Topics(churn.server.bootstrap).create()
    place = str(tmp_path / "marks")
    bootstrap = churn.server.bootstrap
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--checkpoints", place)
    assert job(*arguments) == 0
    (owner_file,) = (tmp_path / "marks").rglob("job.json")
    said = json.loads(owner_file.read_text())
    # Hadoop would notice that the file was changed behind its back.
    owner_file.with_name(f".{owner_file.name}.crc").unlink()
    owner_file.write_text(json.dumps(said | {"claim": said["claim"] | {"job": "land"}}))
    assert job(*arguments) == 1
    assert "of the job 'land', not 'rebalances'" in capsys.readouterr().err
    # And one that belongs to tables which are not there any more.
    owner_file.write_text(json.dumps(said))
    shutil.rmtree(job.lake)
    assert job(*arguments) == 1
    assert "for the table with id" in capsys.readouterr().err


@pytest.mark.long
def test_a_group_with_members_is_told_of_once_and_left_alone(
    churn: Churn, job: Job, capfd: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Consumer  # noqa: PLC0415

    bootstrap = churn.server.bootstrap
    topics = Topics(bootstrap)
    topic = topics.create()
    topics.produce(topic, 2)
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": f"taken-{topic}"})
    try:
        member.subscribe([topic])
        while not member.assignment():
            member.poll(0.1)
        where = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", f"taken-{topic}")
        # Batch by batch: each would be told of.
        assert job(*where, "--max-offsets-per-trigger", "1") == 0
    finally:
        member.close()
    told = capfd.readouterr().err
    assert told.count("the commit to the group") == 1
    assert "the group has members, choose another one with --group" in told
    assert job.table("quarantine").count() == 2


@pytest.mark.long
def test_a_broker_without_a_rebalance_so_far_leaves_empty_tables(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with KohortServer(tmp_path / "new") as server:
        assert job("--bootstrap-server", server.bootstrap) == 0
        told = capsys.readouterr().err
        assert "has no history yet" in told
        assert "--from" in told
        for name in ("rebalances", "groups", "partitions"):
            assert not job.table(name).count()
        # And then it has one.
        member = RawMember(server.port, "first", instance_id="one")
        assert not member.join().answer().error_code
        assert not member.sync({member.member_id: share("orders", 0)}).error_code
        topics, history = Topics(server.bootstrap), "__rebalance_history"
        # Listings of all topics leave it out.
        described = partial(topics.admin.list_topics, history, timeout=10)
        wait_until(lambda: described().topics[history].error is None, "the topic to be created")
        wait_until(lambda: bool(topics.read(history)), "the history to be written")
        assert job("--bootstrap-server", server.bootstrap) == 0
        assert job.table("groups").count() == 1


def test_a_topic_that_is_missing_is_named(
    kohort: KohortServer, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--bootstrap-server", kohort.bootstrap, "--topic", "no-such-history")
    assert job(*arguments) == 1
    assert "no-such-history" in capsys.readouterr().err


def test_a_broker_that_is_not_there_is_named(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert job("--bootstrap-server", address) == 3
    assert address in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job("--from", tmp_path / "absent.jsonl") == 2
    assert "absent.jsonl" in capsys.readouterr().err
