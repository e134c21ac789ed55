"""`kohort pipeline land`: what is in the tables is what is in the topics, whatever happened."""

import shutil
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.pipeline.conftest import Pipeline
from tests.pipeline.frames import assert_records, assert_rows, records
from tests.pipeline.topics import Row, Topics
from tests.support.brokers.kohort_server import KohortServer


class Land:
    """Runs the job, until it is caught up, into a lake of the test's own."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, topics: Topics, lake: Path) -> None:
        self.lake = lake
        self._pipeline, self._spark, self._topics = pipeline, spark, topics

    def __call__(self, *arguments: object) -> int:
        bootstrap = ("--bootstrap-server", self._topics.bootstrap)
        given = arguments if "--bootstrap-server" in arguments else (*arguments, *bootstrap)
        return self._pipeline("land", *given, "--lake", self.lake, "--available-now")

    def table(self, topic: str) -> DataFrame:
        return self._read(f"land/{topic}")

    def rows(self, topic: str) -> list[Row]:
        """The table as it is now, as `Topics.read` shows a topic."""
        rows = [tuple(row) for row in records(self.table(topic)).collect()]
        return [(*row[:5], row[5] or ()) for row in rows]

    def gaps(self) -> DataFrame:
        gaps = self._read("gaps")
        return gaps.select("topic", "partition", "from_offset", "to_offset", "reason")

    def _read(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(str(self.lake / name))


@pytest.fixture
def land(pipeline: Pipeline, spark: SparkSession, topics: Topics, tmp_path: Path) -> Land:
    return Land(pipeline, spark, topics, tmp_path / "lake")


def test_a_table_has_each_record_of_its_topic_once_over_several_runs(
    land: Land, topics: Topics, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = topics.create(3), topics.create()
    topics.produce(first, 500, partitions=3)
    topics.produce(second, 10)
    # More than one batch, and the last of them not full.
    assert land(first, "--max-offsets-per-trigger", 200) == 0
    assert_records(land.table(first), topics.read(first))
    told = capfd.readouterr().err
    assert f"land {first}: batch 2, " in told
    assert "land: 500 rows in all" in told
    # As if the driver had been killed after the rows of its last batch were in the table.
    last = max(land.lake.glob("_checkpoints/*/*/*/commits/[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

    topics.produce(first, 100, partitions=3, first=500)
    if pyspark.__version__.startswith("4.0."):
        # It cannot repeat a batch in a topic with more partitions.
        assert land(first) == 0
    topics.add_partitions(first, 4)
    topics.produce(first, 40, partitions=4, first=600)
    assert land(first, second) == 0
    assert_records(land.table(first), topics.read(first))
    assert_records(land.table(second), topics.read(second))

    assert land(first, second) == 0
    assert "land: 0 rows in all" in capfd.readouterr().err
    assert_records(land.table(first), topics.read(first))


@pytest.mark.long
def test_how_far_the_table_is_can_be_seen_as_the_lag_of_a_group(land: Land, topics: Topics) -> None:
    topic = topics.create(2)
    topics.produce(topic, 100, partitions=2)
    assert land(topic, "--group", f"lake-{topic}") == 0
    assert topics.committed(f"lake-{topic}", topic) == {0: 50, 1: 50}
    topics.produce(topic, 10, partitions=2)
    assert land(topic, "--group", f"lake-{topic}") == 0
    assert topics.committed(f"lake-{topic}", topic) == {0: 55, 1: 55}


@pytest.mark.long
def test_topics_that_match_are_landed_from_a_time_on_and_what_was_before_later(
    land: Land, topics: Topics, capfd: pytest.CaptureFixture[str]
) -> None:
    name = topics.create(2)
    other = topics.create()
    topics.produce(name, 100, partitions=2)
    topics.produce(other, 10)
    pattern = ("--pattern", f"{name[:-2]}.*")
    # Record 50 has this time.
    assert land(*pattern, "--from", "2023-11-14T22:13:20.050Z") == 0
    assert_records(land.table(name), [row for row in topics.read(name) if row[1] >= 25])
    assert not Path(land.lake, "land", other).exists()
    assert land(*pattern, "--backfill", "2023-11-14T22:13:20.020Z") == 0
    assert "30 earlier offsets landed" in capfd.readouterr().err
    assert_records(land.table(name), [row for row in topics.read(name) if row[1] >= 10])
    for _ in range(2):
        assert land(name, "--backfill", "2000-01-01") == 0
        assert_records(land.table(name), topics.read(name))
    assert "0 earlier offsets landed" in capfd.readouterr().err


def test_which_topics_has_to_be_said(land: Land, capfd: pytest.CaptureFixture[str]) -> None:
    assert land() == 2
    assert "no topic given" in capfd.readouterr().err


def test_records_that_were_deleted_before_they_were_landed_end_the_job_by_name(
    land: Land, topics: Topics, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create(2)
    topics.produce(topic, 100, partitions=2)
    assert land(topic) == 0
    topics.produce(topic, 100, partitions=2)
    topics.delete_records(topic, 1, 70)
    before = land.rows(topic)
    assert land(topic) == 1
    told = capfd.readouterr().err
    assert f"records of {topic} were lost" in told
    assert "partition 1 offsets 50 to 69" in told
    assert "--on-data-loss=record" in told
    assert_records(land.table(topic), before)


@pytest.mark.long
def test_records_that_were_deleted_are_noted_once_where_that_is_wanted(
    land: Land, topics: Topics
) -> None:
    topic = topics.create(2)
    topics.produce(topic, 100, partitions=2)
    assert land(topic) == 0
    landed = land.rows(topic)
    topics.produce(topic, 100, partitions=2)
    topics.delete_records(topic, 1, 70)
    assert land(topic, "--on-data-loss", "record") == 0
    assert land(topic, "--on-data-loss", "record") == 0
    there = topics.read(topic)
    places = {row[:2] for row in there}
    gone = [row for row in landed if row[:2] not in places]
    assert_records(land.table(topic), gone + there)
    gaps = land.gaps().withColumn("reason", f.substring("reason", 1, 26))
    assert_rows(gaps, [(topic, 1, 50, 70, "deleted before it was read")])


@pytest.mark.long
def test_a_topic_that_was_created_again_is_not_taken_for_the_one_it_was(
    land: Land, topics: Topics, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    topics.produce(topic, 100)
    assert land(topic) == 0
    former = land.rows(topic)
    topics.delete(topic)
    topics.create(name=topic)
    # Longer than the former one was when it was landed: offsets alone would not tell.
    topics.produce(topic, 150, first=1000)

    assert land(topic) == 1
    told = capfd.readouterr().err
    assert f"{topic} was deleted and recreated" in told
    assert "up to 0: 100" in told
    assert_records(land.table(topic), former)

    assert land(topic, "--on-data-loss", "record") == 0
    assert_records(land.table(topic), former + topics.read(topic))
    gaps = land.gaps().withColumn("reason", f.regexp_extract("reason", "recreated", 0))
    assert_rows(gaps, [(topic, 0, 100, None, "recreated")])
    # From now on it is the topic that is landed.
    assert land(topic) == 0


@pytest.mark.long
def test_a_table_whose_checkpoint_was_lost_goes_on_where_it_ends(
    land: Land, topics: Topics
) -> None:
    topic = topics.create(2)
    topics.produce(topic, 100, partitions=2)
    assert land(topic) == 0
    shutil.rmtree(land.lake / "_checkpoints")
    topics.produce(topic, 30, partitions=2)
    assert land(topic) == 0
    assert_records(land.table(topic), topics.read(topic))


@pytest.mark.long
def test_a_checkpoint_of_another_table_is_refused(
    land: Land, topics: Topics, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    topics.produce(topic, 10)
    checkpoints = ("--checkpoints", tmp_path / "checkpoints")
    assert land(topic, *checkpoints) == 0
    land.lake = tmp_path / "other"
    assert land(topic, *checkpoints) == 1
    told = capfd.readouterr().err
    assert "is a checkpoint for the table with id" in told
    assert "--checkpoints" in told
    assert_records(land.table(topic), [])


@pytest.mark.long
def test_a_checkpoint_of_another_query_is_refused(
    land: Land, topics: Topics, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    topics.produce(topic, 10)
    checkpoints = ("--checkpoints", tmp_path / "checkpoints")
    assert land(topic, *checkpoints) == 0
    ((owner_file),) = (tmp_path / "checkpoints").rglob("job.json")
    owner_file.unlink()
    # The checksum that Hadoop keeps beside a file would give the next one away.
    owner_file.with_name(".job.json.crc").unlink()
    assert land(topic, *checkpoints) == 1
    assert "is the checkpoint of another query" in capfd.readouterr().err
    owner_file.write_text('{"claim": {}}')
    assert land(topic, *checkpoints) == 1
    assert "job.json is invalid" in capfd.readouterr().err


def test_a_topic_that_is_missing_is_named_and_not_created(
    land: Land, topics: Topics, capfd: pytest.CaptureFixture[str]
) -> None:
    there = topics.create()
    topics.produce(there, 10)
    assert land("nobody-made-this", there) == 1
    told = capfd.readouterr().err
    assert f"the topic nobody-made-this does not exist at {topics.bootstrap}" in told
    assert "nobody-made-this" not in topics.admin.list_topics(timeout=10).topics
    # The other one is none the worse for it.
    assert_records(land.table(there), topics.read(there))


def test_a_broker_that_is_not_there_is_named_at_once(
    land: Land, capfd: pytest.CaptureFixture[str]
) -> None:
    assert land("orders", "--bootstrap-server", "127.0.0.1:1") == 3
    told = capfd.readouterr().err
    assert "no broker can be reached (127.0.0.1:1: Connection refused)" in told
    assert "Traceback" not in told


def test_a_lake_that_is_a_file_is_named(
    land: Land, topics: Topics, capfd: pytest.CaptureFixture[str]
) -> None:
    land.lake.write_text("a file")
    topic = topics.create()
    assert land(topic) == 1
    told = capfd.readouterr().err
    assert "Is that directory a lake of this pipeline?" in told
    assert "Traceback" not in told


@pytest.mark.long
def test_a_group_with_members_is_no_reason_to_stop(
    land: Land, topics: Topics, kohort: KohortServer, capfd: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Consumer  # noqa: PLC0415

    topic = topics.create()
    topics.produce(topic, 10)
    group = f"taken-{topic}"
    member = Consumer({"bootstrap.servers": kohort.bootstrap, "group.id": group})
    try:
        member.subscribe([topic])
        while not member.assignment():
            member.poll(0.1)
        assert land(topic, "--group", group) == 0
    finally:
        member.close()
    assert "the group has members, choose another one with --group" in capfd.readouterr().err
    assert_records(land.table(topic), topics.read(topic))


def test_offsets_without_holes_are_one_range(spark: SparkSession) -> None:
    from kohort.pipeline.landing.topic import _contiguous_ranges  # noqa: PLC0415

    offsets = spark.createDataFrame([(offset,) for offset in (7, 0, 1, 2, 5, 6)], "offset long")
    assert _contiguous_ranges(offsets) == [(0, 3), (5, 8)]
