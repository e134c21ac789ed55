"""Spark's own Kafka connector: it gets from Kohort what it gets from a real Kafka.

Each scene is played on both, with the same records in topics of the same shape, and has the same
outcome; what it should be is said beside it, or read by another client.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.pipeline.frames import assert_records, assert_rows
from tests.pipeline.topics import Row, Topics
from tests.support.brokers.kafka_server import KafkaServer

T = TypeVar("T")
Both = Callable[[Callable[[Topics], T]], T]

FIRST_MS = 1_700_000_000_000
"""The time of record 0; each is a millisecond after the one before it."""


@pytest.fixture(scope="session")
def kafka(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def both(topics: Topics, kafka: KafkaServer) -> Both[Any]:
    """Plays a scene on both brokers and returns its outcome, which is the same."""

    def play(scene: Callable[[Topics], T]) -> T:
        ours, theirs = scene(topics), scene(Topics(kafka.bootstrap))
        assert ours == theirs
        return ours

    return play


def filled(topics: Topics, count: int = 90) -> str:
    """Three partitions with a third of the records each."""
    topic = topics.create(3)
    topics.produce(topic, count, partitions=3)
    return topic


def batch(spark: SparkSession, topics: Topics, topic: str, **options: object) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
    named = {"subscribe": topic} if "subscribePattern" not in options else {}
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    return reader.options(includeHeaders="true", **named, **given).load()


def offsets(frame: DataFrame) -> DataFrame:
    return frame.select("partition", "offset")


def by_partition(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(index): value for index, value in enumerate(values)}})


def test_a_batch_has_all_records_with_key_value_headers_and_time(
    spark: SparkSession, both: Both[list[Row]]
) -> None:
    def scene(topics: Topics) -> list[Row]:
        topic = filled(topics)
        found = topics.read(topic)
        assert_records(batch(spark, topics, topic), found)
        return found

    found = both(scene)
    assert len(found) == 90
    assert found[1][5] == (("number", b"3"), ("twice", b"1"), ("twice", None))


def test_a_batch_from_time_to_time(spark: SparkSession, both: Both[None]) -> None:
    def scene(topics: Topics) -> None:
        topic = filled(topics)
        begin = by_partition(topic, FIRST_MS + 84, FIRST_MS + 86, FIRST_MS)
        end = by_partition(topic, FIRST_MS + 88, FIRST_MS + 1_000_000, FIRST_MS + 3)
        frame = batch(
            spark, topics, topic, startingOffsetsByTimestamp=begin, endingOffsetsByTimestamp=end
        )
        # Record n is in partition n % 3, at offset n // 3.
        assert_rows(offsets(frame), [(0, 28), (0, 29), (1, 29), (2, 0)])

    both(scene)


@pytest.mark.long
def test_a_stream_goes_on_where_it_ended_and_finds_new_partitions(
    spark: SparkSession, both: Both[list[Row]], tmp_path: Path
) -> None:
    def scene(topics: Topics) -> list[Row]:
        topic = filled(topics, 60)
        place = tmp_path / topic

        def run(**options: str) -> None:
            stream = (
                spark.readStream.format("kafka")
                .option("kafka.bootstrap.servers", topics.bootstrap)
                .options(subscribe=topic, startingOffsets="earliest", includeHeaders="true")
                .options(maxOffsetsPerTrigger="30", **options)
                .load()
                .writeStream.option("checkpointLocation", f"{place}-checkpoint")
                .trigger(availableNow=True)
                .start(str(place), format="parquet")
            )
            stream.awaitTermination()

        run()
        topics.produce(topic, 30, partitions=3, first=60)
        topics.add_partitions(topic, 4)
        topics.produce(topic, 20, partitions=4, first=90)
        run()
        found = topics.read(topic)
        assert_records(spark.read.parquet(str(place)), found)
        return found

    assert len(both(scene)) == 110


@pytest.mark.long
def test_the_older_way_to_find_offsets_works_too(spark: SparkSession, both: Both[int]) -> None:
    """It joins a group, as no other way of the connector does."""
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(setting, "true")
    try:
        assert both(lambda topics: batch(spark, topics, filled(topics)).count()) == 90
    finally:
        spark.conf.unset(setting)


def test_what_is_written_is_what_another_client_reads(
    spark: SparkSession, both: Both[list[Row]]
) -> None:
    def scene(topics: Topics) -> list[Row]:
        topic = topics.create(3)
        frame = spark.range(30).select(
            f.when(f.col("id") % 4 > 0, f.concat(f.lit("key "), "id")).alias("key"),
            f.concat(f.lit("value "), "id").alias("value"),
            (f.col("id") % 3).cast("int").alias("partition"),
            f.array(
                f.struct(
                    f.lit("id").alias("key"),
                    f.col("id").cast("string").cast("binary").alias("value"),
                )
            ).alias("headers"),
        )
        writer = frame.coalesce(1).write.format("kafka")
        writer.options(topic=topic, includeHeaders="true").option(
            "kafka.bootstrap.servers", topics.bootstrap
        ).save()
        return [(*row[:2], *row[3:]) for row in topics.read(topic)]

    found = both(scene)
    assert len(found) == 30
    assert found[1] == (0, 1, b"key 3", b"value 3", (("id", b"3"),))
    assert found[4] == (0, 4, None, b"value 12", (("id", b"12"),))


def test_records_that_are_gone_are_an_error_unless_that_is_not_wanted(
    spark: SparkSession, both: Both[bool]
) -> None:
    def scene(topics: Topics) -> bool:
        topic = topics.create()
        topics.produce(topic, 30)
        topics.delete_records(topic, 0, 27)
        begin = {"startingOffsets": by_partition(topic, 10)}
        with pytest.raises(Py4JJavaError) as error:
            batch(spark, topics, topic, **begin).count()
        left = batch(spark, topics, topic, **begin, failOnDataLoss="false")
        assert_rows(offsets(left), [(0, 27), (0, 28), (0, 29)])
        return "KAFKA_DATA_LOSS" in str(error.value) or "out of range" in str(error.value)

    assert both(scene)
